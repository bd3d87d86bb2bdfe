// The running gateway, in front of its simulated pool.
//
// No test sleeps but to look again within a deadline; where a client would sleep before a retry, it is recorded instead.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

export const DEADLINE = 20_000;
export const MESSAGES = [{ role: "user", content: "Name three rivers." }];
// What the simulated pool says within ten tokens.
export const TEXT = "The pool is simulated and every word of it counts ";

const ADMIN = "the-operator";
const POLICY = fileURLToPath(new URL("../policy.yaml", import.meta.url));

/** A gateway of its own, ended by its own process. */
export class Gateway {
  static async start() {
    const program = process.env.GATEWAY_BIN;
    if (!program) throw new Error("GATEWAY_BIN is the gateway to test, for instance target/debug/gateway");
    const gateway = new Gateway();
    const env = { ...process.env, GATEWAY_ADMIN_KEY: ADMIN };
    const stdio = ["ignore", "pipe", "inherit"];
    gateway.process = spawn(program, ["--listen", "127.0.0.1:0", "--policy", POLICY], { env, stdio });
    for await (const line of createInterface({ input: gateway.process.stdout })) {
      const [, url] = line.match(/listening on (\S+)/) ?? [];
      gateway.url ??= url;
      if (line.startsWith("curl") && line.includes("/v1/quota")) break;
    }
    if (!gateway.url) throw new Error("the gateway did not start");
    gateway.process.stdout.resume();
    return gateway;
  }

  async close() {
    const ended = once(this.process, "exit");
    this.process.kill("SIGTERM");
    await ended;
  }

  async get(path) {
    const response = await fetch(this.url + path, { headers: { authorization: `Bearer ${ADMIN}` } });
    return response.json();
  }

  /** What happened to a request. */
  async story(id) {
    const { entries = [] } = await this.get(`/admin/requests/${id}`);
    return entries.map((entry) => entry.event);
  }

  /** How it ended. */
  async ending(id) {
    const end = Date.now() + DEADLINE;
    while ((await this.story(id)).length < 2 && Date.now() < end) await new Promise((go) => setTimeout(go, 10));
    return (await this.story(id)).at(-1);
  }
}

/** Runs something while the clients' waits are over at once; gives them, in milliseconds. */
export async function waits(run) {
  const { setTimeout: real } = globalThis;
  const recorded = [];
  globalThis.setTimeout = (then, time, ...more) => {
    const caller = new Error().stack.split("\n")[2];
    // What is longer bounds a request; what the connections do is none of it.
    const waits = /node_modules/.test(caller) && !/undici/.test(caller) && time <= 60_000;
    if (waits) recorded.push(time);
    return real(then, waits ? 0 : time, ...more);
  };
  try {
    await run();
  } finally {
    globalThis.setTimeout = real;
  }
  return recorded;
}
