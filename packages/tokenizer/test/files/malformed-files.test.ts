import { execFileSync } from "node:child_process";
import { mkdir, mkdtemp, open, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { EspalierError, isJsonObject } from "@espalier/core";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { parseJsonObject } from "../../src/json-object.ts";
import { loadTokenizerFiles, readBoundedText } from "../../src/tokenizer-files.ts";

const mebibyte = 1024 * 1024;
let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "espalier-malformed-"));
  await write("tokenizer.json", "{}");
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const at = (name: string): string => join(folder, name);
const write = (name: string, text: string | Uint8Array): Promise<void> => writeFile(at(name), text);

/** Code and message of the error that a promise is rejected with. */
async function errorOf(promise: Promise<unknown>): Promise<{ readonly code: string; readonly message: string }> {
  const thrown = await promise.then(
    () => new Error("nothing was thrown"),
    (error: unknown) => error,
  );
  if (!(thrown instanceof EspalierError)) throw thrown;
  return { code: thrown.code, message: thrown.message };
}

/** A file of that many bytes, most of which take no room on the disk. */
async function writeSparse(name: string, sizeBytes: number): Promise<void> {
  const file = await open(at(name), "w");
  await file.truncate(sizeBytes);
  await file.close();
}

const objects = [
  "tokenizer.json",
  "tokenizer_config.json",
  "generation_config.json",
  "special_tokens_map.json",
  "chat_template.json",
];

describe.each(objects)("%s", (name) => {
  test.each([
    { text: "", problem: "is not valid JSON: " },
    { text: '{"a": }', problem: "is not valid JSON: " },
    { text: '{"a": 1} x', problem: "is not valid JSON: " },
    { text: "\ufeff{}", problem: "is not valid JSON: " },
    { text: "[{}]", problem: "is not a JSON object" },
    { text: '"text"', problem: "is not a JSON object" },
    { text: "null", problem: "is not a JSON object" },
    { text: "7", problem: "is not a JSON object" },
  ])("that holds $text $problem", async ({ text, problem }) => {
    await write(name, text);
    const { code, message } = await errorOf(loadTokenizerFiles(folder));
    expect(code).toBe("config_invalid");
    expect(message.startsWith(`${at(name)} ${problem}`), message).toBe(true);
  });

  test("that is a folder is no regular file", async () => {
    await rm(at(name), { force: true });
    await mkdir(at(name));
    expect(await errorOf(loadTokenizerFiles(folder))).toEqual({
      code: "config_unreadable",
      message: `${at(name)} is not a regular file`,
    });
  });

  test("that leads to itself cannot be read", async () => {
    await rm(at(name), { force: true });
    await symlink(at(name), at(name));
    expect(await errorOf(loadTokenizerFiles(folder))).toEqual({
      code: "config_unreadable",
      message: `${at(name)} cannot be read: ELOOP`,
    });
  });
});

describe("one byte past the bound", () => {
  test.each([
    { name: "tokenizer_config.json", maxBytes: 16 * mebibyte },
    { name: "generation_config.json", maxBytes: 16 * mebibyte },
    { name: "special_tokens_map.json", maxBytes: 16 * mebibyte },
    { name: "chat_template.json", maxBytes: 16 * mebibyte },
    { name: "chat_template.jinja", maxBytes: 16 * mebibyte },
    { name: "additional_chat_templates/rag.jinja", maxBytes: 16 * mebibyte },
  ])("$name is refused", async ({ name, maxBytes }) => {
    await mkdir(at("additional_chat_templates"));
    await writeSparse(name, maxBytes + 1);
    expect(await errorOf(loadTokenizerFiles(folder))).toEqual({
      code: "config_unreadable",
      message: `${at(name)} is larger than ${maxBytes} bytes: is it the right file?`,
    });
  });
});

describe("reading a text of bounded length", () => {
  test.each([
    { sizeBytes: 0, maxBytes: 0 },
    { sizeBytes: 1, maxBytes: 1 },
    { sizeBytes: 99, maxBytes: 100 },
    { sizeBytes: 200_000, maxBytes: 200_000 },
  ])("$sizeBytes of at most $maxBytes bytes are read", async ({ sizeBytes, maxBytes }) => {
    await write("text", "x".repeat(sizeBytes));
    expect(await readBoundedText(at("text"), maxBytes)).toBe("x".repeat(sizeBytes));
  });

  test("the bound is one of bytes, not of characters", async () => {
    await write("text", "é".repeat(50));
    expect(await readBoundedText(at("text"), 100)).toHaveLength(50);
    expect((await errorOf(readBoundedText(at("text"), 99))).code).toBe("config_unreadable");
  });

  test("characters that lie across two chunks are whole, and bytes that are no UTF-8 are replaced", async () => {
    const text = `x${"好".repeat(50_000)}`;
    await write("text", text);
    expect(await readBoundedText(at("text"), mebibyte)).toBe(text);
    await write("text", Uint8Array.of(0x61, 0xff, 0x62));
    expect(await readBoundedText(at("text"), mebibyte)).toBe("a\ufffdb");
  });

  test("no such file gives nothing, in a folder that is there or not", async () => {
    expect(await readBoundedText(at("nothing"), 10)).toBeUndefined();
    expect(await readBoundedText(at("nothing/at/all"), 10)).toBeUndefined();
  });

  test("a path through a file, or with a zero character, cannot be read", async () => {
    const through = at("tokenizer.json/x");
    expect(await errorOf(readBoundedText(through, 10))).toEqual({
      code: "config_unreadable",
      message: `${through} cannot be read: ENOTDIR`,
    });
    expect((await errorOf(readBoundedText("a\0b", 10))).message).toContain("cannot be read: ERR_INVALID_ARG_VALUE");
  });

  test("a pipe that nobody writes to does not keep it waiting", async () => {
    execFileSync("mkfifo", [at("pipe")]);
    expect((await errorOf(readBoundedText(at("pipe"), 10))).message).toBe(`${at("pipe")} is not a regular file`);
  });

  test("a device without end is no regular file", async () => {
    expect((await errorOf(readBoundedText("/dev/zero", 10))).message).toBe("/dev/zero is not a regular file");
  });

  test("a file by way of a link is read", async () => {
    await symlink(at("tokenizer.json"), at("link"));
    expect(await readBoundedText(at("link"), 10)).toBe("{}");
  });
});

describe("templates beside the tokenizer", () => {
  const templateOf = async (): Promise<string | undefined> => (await loadTokenizerFiles(folder)).chatTemplate;

  test("an empty chat_template.jinja is a template, and comes before the other file", async () => {
    await write("chat_template.json", '{"chat_template": "of json"}');
    await write("chat_template.jinja", "");
    expect(await templateOf()).toBe("");
  });

  test.each(["{}", '{"chat_template": null}', '{"chat_template": ["a"]}', '{"chat_template": {"default": "a"}}'])(
    "chat_template.json with %s has none",
    async (text) => {
      await write("chat_template.json", text);
      expect(await templateOf()).toBeUndefined();
    },
  );

  test("a malformed chat_template.json is refused although chat_template.jinja would be used", async () => {
    await write("chat_template.jinja", "of jinja");
    await write("chat_template.json", "{");
    expect((await errorOf(loadTokenizerFiles(folder))).code).toBe("config_invalid");
  });

  test("a file where the folder of additional templates would be is as if it were not there", async () => {
    await write("additional_chat_templates", "text");
    expect((await loadTokenizerFiles(folder)).additionalTemplates).toEqual({});
  });

  test("names of additional templates are those of the files, whatever objects have by nature", async () => {
    await mkdir(at("additional_chat_templates"));
    for (const name of ["a.b.jinja", ".jinja", "constructor.jinja", "x.JINJA", "y.jinja2"]) {
      await write(join("additional_chat_templates", name), name);
    }
    const { additionalTemplates } = await loadTokenizerFiles(folder);
    expect(Object.entries(additionalTemplates)).toEqual([
      ["", ".jinja"],
      ["a.b", "a.b.jinja"],
      ["constructor", "constructor.jinja"],
    ]);
  });

  test("an additional template that is a folder is refused", async () => {
    await mkdir(at("additional_chat_templates/x.jinja"), { recursive: true });
    expect((await errorOf(loadTokenizerFiles(folder))).message).toContain("x.jinja is not a regular file");
  });
});

describe("JSON objects", () => {
  test.each([
    { value: {}, is: true },
    { value: Object.create(null) as object, is: true },
    { value: [], is: false },
    { value: null, is: false },
    { value: "{}", is: false },
    { value: undefined, is: false },
  ])("$value: $is", ({ value, is }) => {
    expect(isJsonObject(value)).toBe(is);
  });

  test("are parsed with the name of the text in each message, and the cause kept", () => {
    expect(parseJsonObject('{"a": [1]}', "the text")).toEqual({ a: [1] });
    expect(() => parseJsonObject("[]", "the text")).toThrow("the text is not a JSON object");
    let thrown: unknown;
    try {
      parseJsonObject("{", "the text");
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toMatchObject({ code: "config_invalid", cause: expect.any(SyntaxError) });
  });
});
