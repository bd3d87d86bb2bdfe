// The AI SDK with its provider for OpenAI-compatible servers, against the running gateway.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, RetryError, embedMany, generateText, streamText } from "ai";

import { Gateway, TEXT, waits } from "./gateway.js";

let gateway;
before(async () => {
  gateway = await Gateway.start();
});
after(() => gateway.close());

const provider = (key = "acme", options = {}) =>
  createOpenAICompatible({ name: "gateway", apiKey: `test-${key}`, baseURL: `${gateway.url}/v1`, ...options });

const call = (key, model = "sim-chat", options = {}) => ({
  model: provider(key)(model),
  prompt: "Name three rivers.",
  maxOutputTokens: 10,
  maxRetries: 0,
  ...options,
});

test("a text", async () => {
  const answer = await generateText(call());
  assert.deepEqual([answer.text, answer.finishReason], [TEXT, "length"]);
  assert.deepEqual([answer.usage.inputTokens, answer.usage.outputTokens], [7, 10]);
  assert.deepEqual(await gateway.story(answer.response.headers["x-request-id"]), ["admitted", "settled"]);
});

test("a streamed text, with its usage where the provider asks for it", async () => {
  for (const includeUsage of [false, true]) {
    const answer = streamText(call("acme", "sim-chat", { model: provider("acme", { includeUsage })("sim-chat") }));
    let said = "";
    for await (const piece of answer.textStream) said += piece;
    assert.equal(said, TEXT);
    assert.equal(await answer.finishReason, "length");
    assert.equal((await answer.usage).outputTokens, includeUsage ? 10 : undefined);
    assert.equal(await gateway.ending((await answer.response).headers["x-request-id"]), "settled");
  }
});

test("embeddings", async () => {
  const model = provider().textEmbeddingModel("sim-embed");
  const answer = await embedMany({ model, values: ["one", "two"], maxRetries: 0 });
  assert.deepEqual(answer.embeddings.map((vector) => vector.length), [8, 8]);
});

test("a rate limit may be retried, and is after its wait", async () => {
  await generateText(call("slow"));
  const waited = await waits(() =>
    assert.rejects(generateText(call("slow", "sim-chat", { maxRetries: 1 })), (error) => {
      assert(RetryError.isInstance(error), `${error}`);
      assert.deepEqual([error.lastError.statusCode, error.lastError.isRetryable], [429, true]);
      assert(error.lastError.responseBody.includes("request_rate_exceeded"));
      return true;
    }),
  );
  assert.equal(waited.length, 1);
  assert(waited[0] > 50_000, `${waited}`);
});

test("a budget is not retried", async () => {
  await generateText(call("poor"));
  const waited = await waits(() =>
    assert.rejects(generateText(call("poor", "sim-chat", { maxRetries: 2 })), (error) => {
      assert(APICallError.isInstance(error), `${error}`);
      assert.deepEqual([error.statusCode, error.isRetryable], [402, false]);
      assert.equal(JSON.parse(error.responseBody).error.code, "insufficient_quota");
      return true;
    }),
  );
  assert.deepEqual(waited, []);
});

test("refusals have their status and words", async () => {
  for (const [key, model, status, words] of [
    ["nobody", "sim-chat", 401, "invalid_api_key"],
    ["slow", "sim-slow", 403, "model_not_found"],
    ["acme", "sim-error-before", 502, "upstream_failed"],
  ]) {
    await assert.rejects(generateText(call(key, model)), (error) => {
      assert(APICallError.isInstance(error), `${error}`);
      assert.equal(error.statusCode, status);
      assert(error.responseBody.includes(words));
      return true;
    });
  }
});

test("a stream that ends badly has an error part", async () => {
  for (const [model, told] of [["sim-error-mid-stream", "broke off"], ["sim-overlong", "output tokens that were agreed"]]) {
    const errors = [];
    const answer = streamText(call("acme", model, { onError: ({ error }) => errors.push(error) }));
    for await (const part of answer.fullStream) if (part.type === "error") errors.push(part.error);
    assert(errors.some((error) => `${error?.message ?? error}`.includes(told)), `${errors}`);
  }
});

test("aborting a stream settles it", async () => {
  const abort = new AbortController();
  const answer = streamText(call("queue", "sim-slow", { abortSignal: abort.signal }));
  for await (const part of answer.fullStream) if (part.type === "text-delta") abort.abort();
  // The tenant's only slot: this waits in the queue until the stream that was left has ended.
  await generateText(call("queue"));
  const { unresolved } = await gateway.get("/admin/unresolved");
  assert.deepEqual(unresolved.filter((lease) => lease.tenant === "queue"), []);
});
