import { EspalierError } from "@espalier/core";
import { reservedFieldNames } from "@espalier/routing";
import { expect, test } from "vitest";
import { readForwardedBody } from "../../src/large-bodies/read-forwarded-body.ts";

/*
 * Clients could have engines fetch KV blocks through a path of `forward-paths`: bodies there went to engines unread. Engines read more
 * than one spelling of a body, so each has to be read as an engine would.
 */
const paramOf = (act: () => unknown): string | undefined => {
  try {
    act();
  } catch (error) {
    if (error instanceof EspalierError && error.code === "reserved_field") return error.param;
    throw error;
  }
  return undefined;
};
const read = (body: string | Buffer, contentType?: string) =>
  paramOf(() => readForwardedBody(Buffer.from(body as string), { contentType, trustsTransferFields: false }));
const json = "application/json";

test.each([...reservedFieldNames])("%s is refused in a body, in a list and in a form", (name) => {
  expect(read(JSON.stringify({ a: 1, [name]: 1 }), json)).toBe(name);
  expect(read(JSON.stringify([{ [name]: 1 }]), json)).toBe(name);
  expect(form([[name, "1"]])).toBe(name);
});

test.each([
  ["without a type", '{"kv_hints":{}}', undefined],
  ["under another type", '{"kv_hints":{}}', "text/plain"],
  ["under a type that ends in +json", '{"kv_hints":{}}', "application/vnd.engine+json"],
  ["after spaces and a byte order mark", '\ufeff \n{"kv_hints":{}}', undefined],
  ["in UTF-16", Buffer.from('{"kv_hints":{}}', "utf16le"), undefined],
  ["beside a number that JSON does not have", '{"top_p":NaN,"kv_hints":{}}', "text/plain"],
  ["with escapes, beside one", '{"top_p":NaN,"kv_h\\u0069nts":{}}', undefined],
  ["as the second of two", '{"kv_hints":null,"kv_hints":{}}', json],
] as const)("a reserved field is refused %s", (_, body, type) => {
  expect(read(body as string, type)).toBe("kv_hints");
});

test.each([
  ["null", '{"kv_hints":null}', json],
  ["text that names one", '{"input":"\\"kv_hints\\": 1"}', json],
  ["bytes", Buffer.from([0xff, 0xd8, 0x00, 0x7b]), "image/jpeg"],
  ["words", 'say "kv_hints"', "text/plain"],
] as const)("%s is a client's", (_, body, type) => {
  expect(read(body as string, type)).toBeUndefined();
});

test("a trusted client may set reserved fields", () => {
  const forwarded = { contentType: json, trustsTransferFields: true };
  expect(readForwardedBody(Buffer.from('{"kv_hints":{},"model":"m"}'), forwarded)).toBe("m");
});

const boundary = "------------------------d74496d66958873e";
const readForm = (text: string, contentType: string, trustsTransferFields = false): string | undefined =>
  readForwardedBody(Buffer.from(text), { contentType, trustsTransferFields });
function form(
  fields: readonly (readonly [name: string, value: string])[],
  type = `multipart/form-data; boundary=${boundary}`,
) {
  const parts = fields.map(
    ([name, value]) => `--${boundary}\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`,
  );
  return paramOf(() => readForm(`${parts.join("")}--${boundary}--\r\n`, type));
}

test("forms are read as the engine reads them: names, and the JSON of vllm_xargs", () => {
  expect(
    form([
      ["model", "m"],
      ["language", "en"],
    ]),
  ).toBeUndefined();
  expect(
    form([
      ["model", "m"],
      ["vllm_xargs", '{"kv_transfer_params":["x"]}'],
    ]),
  ).toBe("vllm_xargs.kv_transfer_params");
  const long = `a"; pad="${"x".repeat(20_000)}"\r\nx-pad: 1\r\nContent-Disposition: form-data; name="kv_hints`;
  expect(form([[long, "{}"]])).toBe("kv_hints");
  expect(form([["prompt", 'name="kv_hints"']])).toBeUndefined();
  expect(form([["kv_hints", "{}"]], `Multipart/Form-Data; charset=utf-8; Boundary="${boundary}"`)).toBe("kv_hints");
  expect(paramOf(() => readForm("model=m&kv%5Fhints=1", "application/x-www-form-urlencoded"))).toBe("kv_hints");
});

const multipart = "multipart/form-data; boundary=cut";
const part = (head: string, value: string): string => `--cut\r\n${head}\r\n\r\n${value}\r\n`;
const named = (name: string): string => `Content-Disposition: form-data; name="${name}"`;
const field = (name: string, value: string): string => part(named(name), value);

test.each([
  ["first", field("model", "a") + field("file", "x"), "a"],
  ["last", field("file", "x\r\n\r\n--cu\r\n") + field("model", "a"), "a"],
  ["after other headers", part('content-type: text/plain\r\nCONTENT-DISPOSITION: form-data; name="model"', "a"), "a"],
  ["without quotes", part("Content-Disposition: form-data; name=model", "a"), "a"],
  ["of several bytes a character", field("model", "žluť"), "žluť"],
  ["behind a header as long as one may be", part(`x: ${"\\".repeat(65_536 - 55)}\r\n${named("model")}`, "a"), "a"],
  ["empty", field("model", ""), undefined],
  ["absent", field("models", "a") + field("file", 'name="model"'), undefined],
  ["in a part without a head", "--cut\r\nmodel\r\n", undefined],
  ["of 1,020 bytes", field("model", "m".repeat(1_020)), "m".repeat(1_020)],
  ["of 1,021 bytes: cut", field("model", "m".repeat(1_021)), "m".repeat(1_020)],
])("a form's model that is %s", (_, text, expected) => {
  expect(readForm(`${text}--cut--\r\n`, multipart)).toBe(expected);
});

test("the model of other forms: of a URL's kind, in whatever spelling, and of a trusted client", () => {
  const urlencoded = "application/x-www-form-urlencoded";
  expect(readForm("language=en&model=org%2Fm", urlencoded)).toBe("org/m");
  for (const spelling of ["žluť", "%C5%BElu%C5%A5"]) expect(readForm(`model=${spelling}`, urlencoded)).toBe("žluť");
  expect(readForm(`${field("kv_hints", "{}")}${field("model", "a")}--cut--`, multipart, true)).toBe("a");
});

test("a form with two models is refused: an engine may take the other one", () => {
  const two = `${field("model", "a")}${field("file", "x")}${field("model", "a")}--cut--\r\n`;
  expect(() => readForm(two, multipart)).toThrow(expect.objectContaining({ code: "duplicate_key", param: "model" }));
});

// Reserved fields passed in these forms: python-multipart 0.0.20, by which engines read them, decodes the names of RFC 2231, and
// ends a field at a semicolon.
test.each([
  ["an encoded name", part("Content-Disposition: form-data; name*=utf-8''kv%5Fhints", "{}"), multipart],
  ["a name in pieces", part("Content-Disposition: form-data; name*0=kv_; name*1=hints", "{}"), multipart],
  ["a semicolon between fields", "model=m;kv_hints=1", "application/x-www-form-urlencoded"],
  ["two boundaries", field("model", "a"), `${multipart}; boundary=other`],
  ["an encoded boundary", field("model", "a"), "multipart/form-data; boundary*=utf-8''cut"],
  ["no boundary", field("model", "a"), "multipart/form-data"],
  ["headers one byte too long", part(`x: ${"x".repeat(65_536 - 54)}\r\n${named("model")}`, "a"), multipart],
])("a form with %s is refused: readers may find other fields in it", (_, text, type) => {
  expect(() => readForm(text, type)).toThrow(expect.objectContaining({ code: "invalid_body" }));
});

test.each([
  ["multipart", multipart, field("model", "a"), "--cut\r\n"],
  ["URL-encoded", "application/x-www-form-urlencoded", "model=a", "&b"],
])("a %s form has 4,096 fields at most", (_, type, first, other) => {
  expect(readForm(first + other.repeat(4_095), type)).toBe("a");
  expect(() => readForm(first + other.repeat(4_096), type)).toThrow(expect.objectContaining({ code: "invalid_body" }));
});
