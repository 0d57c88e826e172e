import { expect, test } from "vitest";
import type { Endpoint } from "../src/index.ts";
import { anthropic, chat, completions, endpointAt, generate, responses, viewOf } from "./helpers.ts";

const embeddings = endpointAt("/v1/embeddings");
const rerank = endpointAt("/v1/rerank");
const score = endpointAt("/v1/score");
const tokenize = endpointAt("/tokenize");
const detokenize = endpointAt("/detokenize");

const say = (content: unknown, more: object = {}) => ({ model: "m", messages: [{ role: "user", content, ...more }] });

test.each<[string, Endpoint, object, number]>([
  ["a string content", chat, say("hello"), 5],
  ["a string content, two bytes a character", chat, say("žluťoučký"), 13],
  ["a string content, three bytes a character", chat, say("你好世界"), 12],
  ["a string content outside the basic plane", chat, say("😀😀"), 8],
  ["no content", chat, say(undefined), 0],
  ["null content", chat, say(null), 0],
  ["text parts", chat, say([{ type: "text", text: "ab" }, "cd", { type: "text", text: "é" }]), 6],
  ["an image part", chat, say([{ type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } }]), 0],
  ["a part without text", chat, say([{ type: "text" }, null, 7]), 0],
  ["a tool call", chat, say(null, { tool_calls: [{ function: { name: "f", arguments: '{"a":1}' } }] }), 7],
  ["a tool result in parts", anthropic, { ...say([{ content: [{ text: "abc" }] }]), max_tokens: 1 }, 3],
  ["Anthropic's system prompt", anthropic, { ...say("a"), max_tokens: 1, system: "four" }, 1 + '"four"'.length],
  ["tools by their JSON", chat, { ...say("a"), tools: [{ type: "function" }] }, 1 + '[{"type":"function"}]'.length],
  ["null tools", chat, { ...say("a"), tools: null }, 1],
  ["a prompt", completions, { model: "m", prompt: "hello" }, 5],
  ["an empty prompt", completions, { model: "m", prompt: "" }, 0],
  ["several prompts", completions, { model: "m", prompt: ["ab", "cde"] }, 5],
  ["token ids", completions, { model: "m", prompt: [1, 2, 4_294_967_295] }, 12],
  ["several prompts of token ids", completions, { model: "m", prompt: [[1, 2], [3]] }, 12],
  ["text and token ids mixed", completions, { model: "m", prompt: ["abc", [1]] }, 7],
  ["embedded prompts", completions, { model: "m", prompt_embeds: "AAAA" }, '"AAAA"'.length],
  ["an embedding input", embeddings, { model: "m", input: ["ab", "c"] }, 3],
  ["an embedding of messages", embeddings, say("abcd"), 4],
  ["an embedding of text and image", embeddings, { model: "m", input: [{ text: "abc", image: "x" }] }, 3],
  ["a Responses string", responses, { model: "m", input: "abc" }, 3],
  ["Responses instructions", responses, { model: "m", input: "abc", instructions: "de" }, 3 + '"de"'.length],
  [
    "Responses items",
    responses,
    {
      model: "m",
      input: [
        { role: "user", content: [{ type: "input_text", text: "ab" }] },
        { type: "function_call", arguments: "{}" },
        { type: "function_call_output", output: "xyz" },
      ],
    },
    7,
  ],
  ["rerank documents and query", rerank, { query: "qq", documents: ["a", "b"] }, '["a","b"]'.length + '"qq"'.length],
  ["a score in vLLM's spelling", score, { text_1: "a", text_2: ["b"] }, '"a"'.length + '["b"]'.length],
  ["a score in SGLang's spelling", score, { query: "a", items: ["b"] }, '"a"'.length + '["b"]'.length],
  ["SGLang text", generate, { text: "abc" }, 3],
  ["SGLang token ids", generate, { input_ids: [5, 6] }, 8],
  ["SGLang batches of token ids", generate, { input_ids: [[5, 6], [7]] }, 12],
  ["text to tokenize", tokenize, { prompt: "abc" }, 3],
  ["messages to tokenize", tokenize, { messages: [{ role: "user", content: "ab" }] }, 2],
  ["tokens to write out", detokenize, { tokens: [1, 2, 3] }, 12],
])("%s", (_, endpoint, body, expected) => {
  expect(viewOf(endpoint, body).promptBytes).toBe(expected);
});

test("escaped and raw text have the same size", () => {
  const escaped = '{"model":"m","prompt":"\\u4f60\\u597d \\n \\u00e9 \\ud83d\\ude00"}';
  expect(viewOf(completions, escaped).promptBytes).toBe(Buffer.byteLength("你好 \n é 😀"));
  expect(viewOf(completions, { model: "m", prompt: "你好 \n é 😀" }).promptBytes).toBe(
    viewOf(completions, escaped).promptBytes,
  );
});
