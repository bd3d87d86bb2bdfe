// SmolLM2 on the CPU behind OpenAI's chat completions, streamed and not: `node model.mjs FILE.gguf`.
// The tokens that it reports are those that it evaluated and generated, none is estimated. GET /log tells of every
// request what it really ran, so that a test need not take the gateway's word for it.
import { createServer } from "node:http";
import { getLlama, LlamaLogLevel } from "node-llama-cpp";

const CONTEXT = 2048;
const llama = await getLlama({ build: "never", skipDownload: true, gpu: false, maxThreads: 1, logLevel: LlamaLogLevel.error });
const model = await llama.loadModel({ modelPath: process.argv[2] });
// Threads wait for each other by spinning: on a busy machine two of them are slower than one by orders of magnitude.
const context = await model.createContext({ contextSize: CONTEXT, threads: 1 });
const sequence = context.getSequence();
const log = [];
let turn = Promise.resolve();

/** The prompt in the model's own chat template, with its own system message where there is none. */
function prompt(messages) {
  const system = { role: "system", content: "You are a helpful AI assistant named SmolLM, trained by Hugging Face" };
  const all = messages[0]?.role === "system" ? messages : [system, ...messages];
  const text = all.map(({ role, content }) => `<|im_start|>${role}\n${content}<|im_end|>\n`).join("");
  return model.tokenize(`${text}<|im_start|>assistant\n`, true);
}

/** Generates at most so many tokens; `say` is given each piece of text, and `gone` asks whether anybody listens. */
async function generate(tokens, most, say, gone) {
  await sequence.clearHistory();
  const made = [];
  let said = "";
  let finish = "length";
  for await (const token of sequence.evaluate(tokens, { temperature: 0 })) {
    made.push(token);
    if (model.isEogToken(token)) {
      finish = "stop";
      break;
    }
    // Some tokens are a part of a character only.
    const text = model.detokenize(made);
    if (!text.endsWith("\ufffd")) {
      say(text.slice(said.length));
      said = text;
    }
    if (made.length >= most || gone()) break;
  }
  return { said, finish, usage: { prompt_tokens: tokens.length, completion_tokens: made.length, total_tokens: tokens.length + made.length } };
}

async function complete(body, response) {
  const tokens = prompt(body.messages);
  const most = body.max_completion_tokens ?? body.max_tokens ?? 64;
  if (tokens.length + most > CONTEXT) {
    return send(response, 400, { error: { message: `${tokens.length} tokens and ${most} more; the context has ${CONTEXT}`, type: "invalid_request_error", code: "context_length_exceeded" } });
  }
  const head = { id: `chatcmpl-${log.length}`, created: 0, model: body.model };
  const chunk = (choices, usage) => response.write(`data: ${JSON.stringify({ ...head, object: "chat.completion.chunk", choices, usage })}\n\n`);
  const delta = (delta, finish_reason = null) => chunk([{ index: 0, delta, finish_reason }], body.stream_options?.include_usage ? null : undefined);
  if (body.stream) {
    response.writeHead(200, { "content-type": "text/event-stream" });
    delta({ role: "assistant", content: "" });
  }
  const { said, finish, usage } = await generate(tokens, most, (text) => body.stream && text && delta({ content: text }), () => response.destroyed);
  log.push({ ...usage, stream: Boolean(body.stream), heard: !response.destroyed });
  if (!body.stream) {
    const choices = [{ index: 0, message: { role: "assistant", content: said }, finish_reason: finish }];
    return send(response, 200, { ...head, object: "chat.completion", choices, usage });
  }
  delta({}, finish);
  if (body.stream_options?.include_usage) chunk([], usage);
  response.end("data: [DONE]\n\n");
}

function send(response, status, body) {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(body));
}

const server = createServer(async (request, response) => {
  try {
    if (request.url === "/log") return send(response, 200, log);
    if (request.url !== "/v1/chat/completions") return send(response, 404, { error: { message: "no such path" } });
    let text = "";
    for await (const piece of request.setEncoding("utf8")) text += piece;
    const body = JSON.parse(text);
    // There is one sequence: one request after the other.
    turn = turn.then(() => complete(body, response));
    await turn;
  } catch (why) {
    turn = Promise.resolve();
    if (response.headersSent) response.destroy();
    else send(response, 500, { error: { message: String(why.message), type: "server_error", code: null } });
  }
});
server.listen(0, "127.0.0.1", () => console.log(`listening on http://127.0.0.1:${server.address().port}`));
process.on("SIGTERM", () => process.exit(0));
