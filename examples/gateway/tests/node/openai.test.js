// OpenAI's client against the running gateway.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import OpenAI from "openai";

import { Gateway, MESSAGES, TEXT, waits } from "./gateway.js";

let gateway;
before(async () => {
  gateway = await Gateway.start();
});
after(() => gateway.close());

const client = (key = "acme", options = {}) =>
  new OpenAI({ apiKey: `test-${key}`, baseURL: `${gateway.url}/v1`, maxRetries: 0, ...options });

const chat = (by, options = {}, how = {}) =>
  by.chat.completions.create({ model: "sim-chat", messages: MESSAGES, max_tokens: 10, ...options }, how);

/** All of a stream. */
async function all(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

test("a completion", async () => {
  const answer = await chat(client());
  assert.equal(answer.choices[0].message.content, TEXT);
  assert.equal(answer.choices[0].finish_reason, "length");
  assert.deepEqual([answer.usage.prompt_tokens, answer.usage.completion_tokens], [7, 10]);
  assert.deepEqual(await gateway.story(answer._request_id), ["admitted", "settled"]);
});

test("a stream, whose usage comes on request only", async () => {
  for (const [stream_options, usages] of [[undefined, []], [{ include_usage: true }, [10]]]) {
    const { data, request_id } = await chat(client(), { stream: true, stream_options }).withResponse();
    const chunks = await all(data);
    assert.equal(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join(""), TEXT);
    assert.deepEqual(chunks.filter((chunk) => chunk.usage).map((chunk) => chunk.usage.completion_tokens), usages);
    assert.equal(await gateway.ending(request_id), "settled");
  }
});

test("the helper that gathers a stream", async () => {
  const stream = client().chat.completions.stream({ model: "sim-chat", messages: MESSAGES, max_tokens: 64 });
  assert.equal(await stream.finalContent(), TEXT + "as one. " + TEXT + "as one. ");
});

test("a text completion", async () => {
  const answer = await client().completions.create({ model: "sim-chat", prompt: "Name", max_tokens: 10 });
  assert.equal(answer.choices[0].text, TEXT);
  const chunks = await all(await client().completions.create({ model: "sim-chat", prompt: "x", max_tokens: 10, stream: true }));
  assert.equal(chunks.map((chunk) => chunk.choices[0].text).join(""), TEXT);
});

test("a response", async () => {
  const answer = await client().responses.create({ model: "sim-chat", input: MESSAGES, max_output_tokens: 10 });
  assert.deepEqual([answer.output_text, answer.status, answer.usage.output_tokens], [TEXT, "incomplete", 10]);
  const events = await all(await client().responses.create({ model: "sim-chat", input: MESSAGES, stream: true }));
  assert.equal(events[0].type, "response.created");
  assert.deepEqual([events.at(-1).type, events.at(-1).response.usage.output_tokens], ["response.completed", 24]);
});

test("embeddings", async () => {
  const answer = await client().embeddings.create({ model: "sim-embed", input: ["one", "two"], encoding_format: "float" });
  assert.deepEqual(answer.data.map((item) => item.embedding.length), [8, 8]);
  assert.equal(answer.usage.prompt_tokens, 2);
});

test("models are those of the key", async () => {
  const models = await all(client("soft").models.list());
  assert.deepEqual(models.map((model) => model.id), ["dear", "sim-chat"]);
  await assert.rejects(client("soft").models.retrieve("sim-embed"), OpenAI.NotFoundError);
});

test("a rate limit is waited out", async () => {
  const by = client("slow", { maxRetries: 1 });
  await chat(by);
  const waited = await waits(() =>
    assert.rejects(chat(by), (error) => {
      assert(error instanceof OpenAI.RateLimitError);
      assert.deepEqual([error.code, error.type], ["rate_limit_exceeded", "requests"]);
      assert.equal(error.headers.get("x-ratelimit-remaining-requests"), "0");
      return true;
    }),
  );
  assert.equal(waited.length, 1);
  assert(waited[0] > 50_000, `${waited}`);
});

test("a budget is not retried", async () => {
  const by = client("poor", { maxRetries: 2 });
  await chat(by);
  const waited = await waits(() =>
    assert.rejects(chat(by), (error) => {
      assert.deepEqual([error.status, error.code], [402, "insufficient_quota"]);
      return true;
    }),
  );
  assert.deepEqual(waited, []);
});

test("errors have the classes that people catch", async () => {
  for (const [key, options, kind, code] of [
    ["nobody", {}, OpenAI.AuthenticationError, "invalid_api_key"],
    ["slow", { model: "sim-slow" }, OpenAI.PermissionDeniedError, "model_not_found"],
    ["acme", { n: 1000 }, OpenAI.BadRequestError, "request_invalid"],
    ["acme", { model: "sim-error-before" }, OpenAI.InternalServerError, "upstream_failed"],
    ["acme", { model: "sim-429" }, OpenAI.RateLimitError, "upstream_busy"],
  ]) {
    await assert.rejects(chat(client(key), options), (error) => {
      assert(error instanceof kind, `${error}`);
      assert.equal(error.code, code);
      assert(error.requestID && !`${error}`.includes(`test-${key}`));
      return true;
    });
  }
});

test("a stream that ends badly raises", async () => {
  for (const [model, code] of [["sim-error-mid-stream", "upstream_broken"], ["sim-overlong", "output_limit_passed"]]) {
    const { data, request_id } = await chat(client(), { model, stream: true }).withResponse();
    await assert.rejects(all(data), (error) => error instanceof OpenAI.APIError && error.code === code);
    assert.equal(await gateway.ending(request_id), "unresolved");
  }
  const stream = await client().responses.create({ model: "sim-error-mid-stream", input: MESSAGES, stream: true });
  await assert.rejects(all(stream), (error) => error instanceof OpenAI.APIError && error.code === "upstream_broken");
});

test("leaving a stream frees its slot and settles", async () => {
  const { data, request_id } = await chat(client("queue"), { model: "sim-slow", stream: true }).withResponse();
  for await (const _ of data) break;
  // The tenant's only slot: this waits in the queue until the stream that was left has ended.
  await chat(client("queue"));
  assert.deepEqual(await gateway.story(request_id), ["admitted", "settled"]);
});

test("aborting a request settles it", async () => {
  const abort = new AbortController();
  const { data, request_id } = await chat(client(), { model: "sim-slow", stream: true }, { signal: abort.signal }).withResponse();
  const reading = all(data);
  abort.abort();
  await reading.catch((error) => assert(error instanceof OpenAI.APIUserAbortError, `${error}`));
  assert.equal(await gateway.ending(request_id), "settled");
  await assert.rejects(chat(client(), { model: "sim-slow" }, { timeout: 100 }), OpenAI.APIConnectionTimeoutError);
});
