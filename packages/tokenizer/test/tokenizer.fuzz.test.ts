import { readFileSync } from "node:fs";
import { join } from "node:path";
import { EspalierError, systemClock } from "@espalier/core";
import { type FuzzTarget, fuzzInFile } from "@espalier/testing";
import { expect, test } from "vitest";
import { createChatRenderer } from "../src/chat/chat-renderer.ts";
import { compileChatTemplate } from "../src/chat/chat-template.ts";
import { parseJsonObject } from "../src/json-object.ts";
import { TemplateError } from "../src/template/template-error.ts";
import { createTextTokenizer } from "../src/text/text-tokenizer.ts";
import { modelFolders } from "./support/models.ts";
import { readTemplate, templateNames } from "./template/golden.ts";

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);
const textOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString("utf8");
const isInvalid = (thrown: unknown): boolean => thrown instanceof EspalierError && thrown.code === "config_invalid";

/** A model's definition with few of its tokens and merges, so that a changed byte hits what gives them a meaning. */
function smallDefinition(name: string): Uint8Array {
  const definition = JSON.parse(readFileSync(join(modelFolders[name]!, "tokenizer.json"), "utf8"));
  const { model } = definition;
  if (Array.isArray(model.vocab)) model.vocab = model.vocab.slice(0, 300);
  else model.vocab = Object.fromEntries(Object.entries(model.vocab).slice(0, 300));
  if (model.merges) model.merges = model.merges.filter(isKnown(model.vocab)).slice(0, 30);
  return utf8(JSON.stringify(definition));
}

const isKnown =
  (vocabulary: Readonly<Record<string, number>>) =>
  (merge: string | readonly string[]): boolean => {
    const [left, right] = typeof merge === "string" ? merge.split(" ") : merge;
    return [left, right, `${left}${right}`].every((piece) => piece !== undefined && piece in vocabulary);
  };

const definitions = Object.keys(modelFolders)
  .map(smallDefinition)
  .filter(({ length }) => length < 60_000);
const chats = [
  { messages: [{ role: "user", content: "Wie geht's?" }] },
  {
    messages: [
      { role: "system", content: [{ type: "text", text: "x" }] },
      { role: "assistant", content: null, tool_calls: [{ id: "1", function: { name: "f", arguments: '{"a":[1]}' } }] },
      { role: "tool", content: "ok", tool_call_id: "1" },
    ],
    tools: [{ type: "function", function: { name: "f", parameters: { type: "object" } } }],
  },
];

const targets: readonly FuzzTarget[] = [
  {
    name: "tokenizer.json",
    seeds: definitions,
    refuses: isInvalid,
    read(bytes) {
      const tokenizer = createTextTokenizer({ tokenizer: parseJsonObject(textOf(bytes), "fuzz"), config: {} });
      const text = "Hello w\u00f6rld, 123  <|im_start|> \u{1f600}\n";
      for (const token of tokenizer.encode(text, { addSpecialTokens: true })) expect(token).toBeLessThan(2 ** 32);
      tokenizer.cuts(text);
    },
  },
  {
    name: "chat template",
    seeds: templateNames.map((name) => utf8(readTemplate(name))),
    refuses: (thrown) => thrown instanceof TemplateError,
    read(bytes, random) {
      const template = compileChatTemplate(textOf(bytes), { clock: systemClock, specialTokens: {} });
      const { messages, tools } = chats[random.integer(chats.length)]!;
      template.render({ messages, variables: { add_generation_prompt: true, ...(tools && { tools }) } });
    },
  },
  {
    name: "chat of a request",
    seeds: chats.map((chat) => utf8(JSON.stringify(chat))),
    refuses: (thrown) => thrown instanceof TemplateError || thrown instanceof SyntaxError,
    read(bytes, random) {
      const fields = JSON.parse(textOf(bytes));
      if (typeof fields !== "object" || fields === null || Array.isArray(fields)) return;
      const chatTemplate = readTemplate(templateNames[random.integer(templateNames.length)]!);
      const files = { config: {}, chatTemplate, additionalTemplates: {} };
      createChatRenderer(files, systemClock).render({ endpoint: "chat", fields });
    },
  },
];

fuzzInFile(test, "whatever it is, it is used, or refused as documented", targets);
