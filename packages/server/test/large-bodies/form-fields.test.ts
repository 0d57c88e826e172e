import { createSeededRandom, EspalierError } from "@espalier/core";
import { expect, test } from "vitest";
import { FormFields } from "../../src/large-bodies/form-fields.ts";

const type = "multipart/form-data; boundary=cut";
const part = (head: string, value: string): string =>
  `--cut\r\nContent-Disposition: form-data; ${head}\r\n\r\n${value}\r\n`;
const file = (value: string): string => part('name="file"; filename="a.wav"', value);

/** What is read of a form in pieces, or the error. */
function read(form: Buffer, sizes: () => number) {
  const fields = new FormFields(type, false);
  try {
    for (let at = 0; at < form.length; ) {
      const size = sizes();
      fields.push(form.subarray(at, at + size));
      at += size;
    }
    fields.end();
  } catch (thrown) {
    if (thrown instanceof EspalierError) return thrown.message;
    throw thrown;
  }
  const { model, modelFrom, modelTo, isStreamed, fileHash } = fields;
  return { model, modelFrom, modelTo, isStreamed, fileHash };
}

test("a form is read alike in whatever pieces it comes", () => {
  const random = createSeededRandom(46);
  const words = [
    "--cut",
    "\r\n",
    "\r\n\r\n",
    "\n\n",
    "--cu",
    'name="model"',
    "m",
    "--cut--",
    "\u0000",
    "kv_hints",
    "x: y",
  ];
  const noise = (): string =>
    Array.from({ length: random.integer(12) }, () => words[random.integer(words.length)]).join("");
  for (let round = 0; round < 400; round++) {
    const parts = [
      part('name="model"', `  m\u00e0${round} `),
      file(noise()),
      part('name="stream"', "true"),
      part('name="vllm_xargs"', `{"a":"${round}"}`),
      noise(),
    ].sort(() => random.integer(3) - 1);
    const form = Buffer.from(`${noise()}${parts.join("")}--cut--\r\n`);
    const whole = read(form, () => form.length);
    for (const longest of [1, 3, 40]) expect(read(form, () => 1 + random.integer(longest))).toEqual(whole);
  }
});

test("the model's place is that of its bytes, without white space", () => {
  const form = Buffer.from(`${part('name="model"', " \tm\u00e0 ")}${file("x")}--cut--\r\n`);
  const found = read(form, () => form.length);
  if (typeof found === "string") throw new Error(found);
  expect([found.model, form.toString("utf8", found.modelFrom, found.modelTo)]).toEqual(["m\u00e0", "m\u00e0"]);
});

test("a file is known by its first 64 KiB, with the blank line before them, whatever else is in the form", () => {
  const hashOf = (value: string, before = ""): unknown => {
    const form = Buffer.from(`${before}${file(value)}--cut--\r\n`);
    const found = read(form, () => 10_000);
    return typeof found === "string" ? found : found.fileHash;
  };
  const start = "x".repeat(65_536 - 5);
  expect(hashOf(`${start}ab`)).toEqual(hashOf(`${start}ac`));
  expect(hashOf(`${start}a`)).not.toEqual(hashOf(`${start}b`));
  expect(hashOf("abc", part('name="prompt"', "hello"))).toEqual(hashOf("abc"));
  expect(hashOf("abc")).toBeDefined();
});

test.each(["true", "True", "1", "on", " yes\t"])("stream: %j asks for a stream", (written) => {
  const form = Buffer.from(`${part('name="stream"', written)}--cut--`);
  expect(read(form, () => 7)).toMatchObject({ isStreamed: true });
});
