import { mkdir, mkdtemp, open, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { EspalierError } from "@espalier/core";
import { afterEach, beforeEach, expect, test } from "vitest";
import { loadTokenizerFiles, shippedModelFolder } from "../src/tokenizer-files.ts";

let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "espalier-files-"));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const write = (name: string, text: string): Promise<void> => writeFile(join(folder, name), text);

async function codeOf(promise: Promise<unknown>): Promise<readonly [string, string]> {
  const error = await promise.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof EspalierError)) throw new Error(`expected an EspalierError, got ${String(error)}`);
  return [error.code, error.message];
}

test("the shipped model's files are read", async () => {
  const files = await loadTokenizerFiles(shippedModelFolder());
  expect(files.folder).toBe(shippedModelFolder());
  expect(files.tokenizer).toMatchObject({ version: "1.0", normalizer: { type: "NFC" } });
  expect(files.config).toMatchObject({ eos_token: "<|im_end|>", chat_template: expect.any(String) });
  expect(files).toMatchObject({
    chatTemplate: undefined,
    generationConfig: {},
    specialTokensMap: {},
    additionalTemplates: {},
  });
});

test("only tokenizer.json is needed", async () => {
  await write("tokenizer.json", "{}");
  expect(await loadTokenizerFiles(folder)).toEqual({
    folder,
    tokenizer: {},
    config: {},
    chatTemplate: undefined,
    additionalTemplates: {},
    generationConfig: {},
    specialTokensMap: {},
  });
});

test("templates come from chat_template.jinja first, then from chat_template.json", async () => {
  await write("tokenizer.json", "{}");
  await write("chat_template.json", '{"chat_template": "of json"}');
  expect((await loadTokenizerFiles(folder)).chatTemplate).toBe("of json");
  await write("chat_template.jinja", "of jinja");
  await write("generation_config.json", '{"eos_token_id": 2}');
  await write("special_tokens_map.json", '{"bos_token": "<s>"}');
  expect(await loadTokenizerFiles(folder)).toMatchObject({
    chatTemplate: "of jinja",
    generationConfig: { eos_token_id: 2 },
    specialTokensMap: { bos_token: "<s>" },
  });
});

test("additional templates go by their names, and there is a bound of them", async () => {
  await write("tokenizer.json", "{}");
  await mkdir(join(folder, "additional_chat_templates"));
  const add = (name: string): Promise<void> => write(join("additional_chat_templates", name), `text of ${name}`);
  await add("tool_use.jinja");
  await add("notes.txt");
  expect((await loadTokenizerFiles(folder)).additionalTemplates).toEqual({ tool_use: "text of tool_use.jinja" });
  for (let index = 1; index < 32; index++) await add(`t${index}.jinja`);
  expect(Object.keys((await loadTokenizerFiles(folder)).additionalTemplates)).toHaveLength(32);
  await add("one-more.jinja");
  expect(await codeOf(loadTokenizerFiles(folder))).toEqual(["config_invalid", expect.stringContaining("more than 32")]);
});

test("a folder without tokenizer.json says what to do", async () => {
  const [code, message] = await codeOf(loadTokenizerFiles(folder));
  expect(code).toBe("config_unreadable");
  expect(message).toContain(join(folder, "tokenizer.json"));
  expect(message).toMatch(/set tokenize to engine or bytes/);
});

test.each([
  { text: "{", problem: "is not valid JSON" },
  { text: "[]", problem: "is not a JSON object" },
  { text: "null", problem: "is not a JSON object" },
])("a file that holds $text is named", async ({ text, problem }) => {
  await write("tokenizer.json", "{}");
  await write("tokenizer_config.json", text);
  const [code, message] = await codeOf(loadTokenizerFiles(folder));
  expect(code).toBe("config_invalid");
  expect(message).toContain(join(folder, "tokenizer_config.json"));
  expect(message).toContain(problem);
});

test("something other than a file is not read", async () => {
  await mkdir(join(folder, "tokenizer.json"));
  expect((await codeOf(loadTokenizerFiles(folder)))[0]).toBe("config_unreadable");
});

/** A file of that many bytes, most of which take no room on the disk. */
async function writeSparse(name: string, start: string, sizeBytes: number): Promise<void> {
  const file = await open(join(folder, name), "w");
  await file.write(start);
  await file.truncate(sizeBytes);
  await file.close();
}

test("files are read up to their bounds and no byte further", async () => {
  await write("tokenizer.json", "{}");
  const maxConfigBytes = 16 * 1024 * 1024;
  await write("chat_template.jinja", "x".repeat(maxConfigBytes));
  expect((await loadTokenizerFiles(folder)).chatTemplate).toHaveLength(maxConfigBytes);
  await writeSparse("chat_template.jinja", "x", maxConfigBytes + 1);
  const [code, message] = await codeOf(loadTokenizerFiles(folder));
  expect([code, message]).toEqual(["config_unreadable", expect.stringContaining("larger than 16777216 bytes")]);
  await rm(join(folder, "chat_template.jinja"));
  await writeSparse("tokenizer.json", "{", 128 * 1024 * 1024 + 1);
  expect((await codeOf(loadTokenizerFiles(folder)))[1]).toContain("larger than 134217728 bytes");
});
