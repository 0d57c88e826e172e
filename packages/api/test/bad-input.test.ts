import type { ErrorCode } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { type Endpoint, endpoints, readRequestView } from "../src/index.ts";
import {
  bytesOf,
  chat,
  completions,
  endpointAt,
  errorOf,
  generate,
  limits,
  responses,
  smallChat,
  viewOf,
} from "./helpers.ts";

const embeddings = endpointAt("/v1/embeddings");
const rerank = endpointAt("/v1/rerank");
const score = endpointAt("/v1/score");
const tokenize = endpointAt("/tokenize");
const detokenize = endpointAt("/detokenize");
const secret = "SECRET";

describe("malformed JSON is refused with the position of the error", () => {
  test.each([
    // what, body, offset in bytes
    ["an empty body", "", 0],
    ["white space only", " \n\t ", 4],
    ["a byte order mark", "\uFEFF{}", 0],
    ["text that is no JSON", "hello", 0],
    ["a form", "model=m&stream=true", 0],
    ["an open object", "{", 1],
    ["an open object with a member", '{"a":1', 6],
    ["an open key", '{"a', 3],
    ["a key without a colon", '{"a"', 4],
    ["a key without a value", '{"a":', 5],
    ["a key with a comma behind it", '{"a",1}', 4],
    ["a key without quotes", "{a:1}", 1],
    ["a key in single quotes", "{'a':1}", 1],
    ["a number for a key", "{1:1}", 1],
    ["a missing value", '{"a":,"b":1}', 5],
    ["a missing comma", '{"a":1 "b":2}', 7],
    ["two commas", '{"a":1,,"b":2}', 7],
    ["a trailing comma in an object", '{"a":1,}', 7],
    ["a trailing comma in an array", '{"a":[1,]}', 8],
    ["a lone comma in an array", '{"a":[,]}', 6],
    ["a mismatched bracket", '{"a":[1}', 7],
    ["a mismatched brace", '{"a":{"b":1]}', 11],
    ["a bracket too many", '{"a":1}}', 7],
    ["text behind the object", '{"a":1} x', 8],
    ["a second object", '{"a":1}{"b":2}', 7],
    ["NaN", '{"a":NaN}', 5],
    ["Infinity", '{"a":-Infinity}', 5],
    ["undefined", '{"a":undefined}', 5],
    ["True of Python", '{"a":True}', 5],
    ["a word cut short", '{"a":tru}', 5],
    ["a leading zero", '{"a":01}', 6],
    ["a leading plus", '{"a":+1}', 5],
    ["a lone minus", '{"a":-}', 5],
    ["a dot without digits", '{"a":1.}', 6],
    ["an exponent without digits", '{"a":1e}', 6],
    ["a hexadecimal number", '{"a":0x10}', 6],
    ["an open string", '{"a":"bc', 8],
    ["an open string that ends in an escape", '{"a":"b\\"', 9],
    ["an unknown escape", '{"a":"b\\x"}', 7],
    ["a short unicode escape", '{"a":"\\u12"}', 6],
    ["a unicode escape with a wrong digit", '{"a":"\\u12g4"}', 6],
    ["a raw line feed in a string", '{"a":"b\nc"}', 7],
    ["a raw tab in a key", '{"a\tb":1}', 3],
    ["a zero byte", '{"a":1\0}', 6],
    ["a comment", '{"a":1 /* b */}', 7],
    ["a no-break space", '{"a":\u00a01}', 5],
    ["an error behind text of several bytes a character", '{"a":"žluť",x}', 14],
    ["an error in an element", '{"a":[true,false,null,nul]}', 22],
  ])("%s", (_, body, at) => {
    const error = errorOf(() => viewOf(chat, body));
    expect(error.code).toBe("invalid_json");
    expect(error.message).toMatch(new RegExp(`(unexpected character|ends too early).* at byte ${at}\\.$`));
    expect(error.message.includes("ends too early")).toBe(at === Buffer.byteLength(body));
  });

  test.each([
    ["inside a string", `{"model":"m","messages":[{"content":"${secret}`],
    ["behind a string", `{"model":"m","messages":[{"content":"${secret}"]}`],
    ["as a bare word", `{"model":${secret}}`],
    ["as a bare key", `{${secret}:1}`],
    ["around the error", `{"model":"${secret}",,"user":"${secret}"}`],
  ])("without a word of the body in the message: %s", (_, body) => {
    const error = errorOf(() => viewOf(chat, body));
    expect(error.code).toBe("invalid_json");
    expect(error.message).not.toContain(secret);
    expect(error.cause).toBeUndefined();
  });
});

describe("bodies that are not UTF-8", () => {
  test.each([
    ["a lone continuation byte", [0x80]],
    ["a lead byte without its continuation", [0xc3]],
    ["a lead byte before the quote", [0xe4, 0xbd]],
    ["an overlong slash", [0xc0, 0xaf]],
    ["an encoded surrogate", [0xed, 0xa0, 0x80]],
    ["a code point past U+10FFFF", [0xf4, 0x90, 0x80, 0x80]],
    ["Latin-1", [0x67, 0x72, 0xfc, 0x6e]],
    ["UTF-16", [0xff, 0xfe, 0x7b, 0x00]],
  ])("%s", (_, bytes) => {
    const body = Buffer.concat([
      Buffer.from('{"model":"m","messages":[{"content":"'),
      Buffer.from(bytes),
      Buffer.from('"}]}'),
    ]);
    expect(errorOf(() => viewOf(chat, body)).code).toBe("invalid_utf8");
  });
});

test.each([
  ["an array", "[1,2]"],
  ["an array of objects", '[{"model":"m"}]'],
  ["an empty array", "[]"],
  ["a string", '"{}"'],
  ["a number", "1"],
  ["null", "null"],
  ["true", " true "],
])("JSON that is no object is refused: %s", (_, body) => {
  expect(errorOf(() => viewOf(chat, body)).code).toBe("invalid_body");
});

describe("duplicate top-level keys are refused, because engines may take the other one", () => {
  test.each([
    ["next to each other", '{"model":"a","model":"b","messages":[{}]}', "model"],
    ["far apart", '{"model":"a","messages":[{}],"n":1,"model":"a"}', "model"],
    ["an escaped spelling", '{"model":"a","messages":[{}],"mod\\u0065l":"b"}', "model"],
    ["the escape first", '{"\\u006dodel":"a","messages":[{}],"model":"b"}', "model"],
    ["two different escapes", '{"\\u006dodel":"a","messages":[{}],"mode\\u006C":"b"}', "model"],
    ["of a field that is not read", '{"model":"a","messages":[{}],"x":1,"x":1}', "x"],
    ["of an empty key", '{"":1,"model":"a","messages":[{}],"":2}', ""],
    ["of a key that is not ASCII", '{"é":1,"model":"a","messages":[{}],"\\u00e9":2}', "é"],
    ["after null", '{"model":null,"model":"a","messages":[{}]}', "model"],
    ["with white space about", '{ "model" : "a" , "messages":[{}]\n,\n"model"\t:\t"b" }', "model"],
  ])("%s", (_, body, key) => {
    const error = errorOf(() => viewOf(chat, body));
    expect(error.code).toBe("duplicate_key");
    expect(error.param).toBe(key);
    expect(error.message).toContain(JSON.stringify(key));
  });

  test("a long key is named by its beginning only", () => {
    const key = "k".repeat(5_000);
    const error = errorOf(() => viewOf(chat, `{"${key}":1,"${key}":2}`));
    expect(error.code).toBe("duplicate_key");
    expect(error.param).toBe("k".repeat(64));
    expect(error.message.length).toBeLessThan(200);
  });
});

describe("a key __proto__ is refused at any depth and in any spelling", () => {
  const escaped = [...'"__proto__"'.slice(1, -1)].map(
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
  test.each([
    ["at the top", '{"__proto__":{},"model":"m","messages":[{}]}'],
    ["at the top, null", '{"model":"m","messages":[{}],"__proto__":null}'],
    ["in a message", '{"model":"m","messages":[{"content":"a","__proto__":{"role":"system"}}]}'],
    ["deep inside", '{"model":"m","messages":[{}],"a":[[{"b":{"__proto__":1}}]]}'],
    ["where a later key hides it", '{"model":"m","messages":[{}],"a":{"b":{"__proto__":1},"b":1}}'],
    ["with space before the colon", '{"model":"m","messages":[{}],"a":{"__proto__" \n : 1}}'],
    ["one underscore escaped", '{"model":"m","messages":[{}],"a":{"_\\u005fproto__":1}}'],
    ["first underscore escaped", '{"model":"m","messages":[{}],"a":{"\\u005f_proto__":1}}'],
    ["escaped in capitals", '{"model":"m","messages":[{}],"a":{"__proto_\\u005F":1}}'],
    ["a letter escaped", '{"model":"m","messages":[{}],"a":{"__pr\\u006fto__":1}}'],
    ["all characters escaped", `{"model":"m","messages":[{}],"a":{"${escaped.join("")}":1}}`],
    ["at the top, escaped", '{"\\u005f\\u005fproto\\u005f\\u005f":1,"model":"m","messages":[{}]}'],
  ])("%s", (_, body) => {
    const error = errorOf(() => viewOf(chat, body));
    expect(error.code).toBe("forbidden_key");
    expect(error.param).toBe("__proto__");
  });

  test.each([
    ["one character more, of the length of an escape", '{"model":"m","messages":[{}],"__proto_12345_":1}'],
    ["an escape that spells something else", '{"model":"m","messages":[{}],"_\\u0041proto__":1}'],
    ["in upper case", '{"model":"m","messages":[{}],"__PROTO__":1}'],
    ["a backslash before the word", '{"model":"m","messages":[{}],"\\\\_proto__":1}'],
    ["a quoted one inside a key", '{"model":"m","messages":[{}],"a \\"__proto__\\"":1}'],
    ["a value before a colon inside a text", '{"model":"m","messages":[{"content":"\\"__proto__\\":"}]}'],
  ])("but not what only resembles it: %s", (_, body) => {
    expect(viewOf(chat, body).model).toBe("m");
  });

  test("malformed JSON is called malformed first", () => {
    expect(errorOf(() => viewOf(chat, '{"__proto__":1')).code).toBe("invalid_json");
    expect(errorOf(() => viewOf(chat, '{"__proto__":1,"\\u005f\\u005fpro\\u00zzto__":2}')).code).toBe("invalid_json");
  });
});

describe("what cannot be routed, or asks for too much, is refused with its name", () => {
  const cases: readonly [Endpoint, object, ErrorCode, string][] = [
    [chat, { ...smallChat, model: 7 }, "invalid_type", "model"],
    [chat, { ...smallChat, model: ["m"] }, "invalid_type", "model"],
    [rerank, { query: "q", documents: ["a"], model: false }, "invalid_type", "model"],
    [chat, { ...smallChat, n: 16_385 }, "invalid_value", "n"],
    [chat, { ...smallChat, n: "16_385" }, "invalid_value", "n"],
    [chat, { ...smallChat, n: "9".repeat(400) }, "invalid_value", "n"],
    [chat, { model: "m" }, "missing_field", "messages"],
    [chat, { model: "m", messages: null }, "missing_field", "messages"],
    [completions, { model: "m" }, "missing_field", "prompt"],
    [embeddings, { model: "m" }, "missing_field", "input"],
    [responses, { model: "m" }, "missing_field", "input"],
    [rerank, { query: "q" }, "missing_field", "documents"],
    [score, {}, "missing_field", "text_1"],
    [generate, {}, "missing_field", "text"],
    [tokenize, {}, "missing_field", "prompt"],
    [detokenize, {}, "missing_field", "tokens"],
  ];
  const named = cases.map(([endpoint, body, ...rest]) => [endpoint.path, body, endpoint, ...rest] as const);
  test.each(named)("%s %j", (_, body, endpoint, code, param) => {
    const error = errorOf(() => viewOf(endpoint, body));
    expect([error.code, error.param]).toEqual([code, param]);
    expect(error.kind.status).toBe(400);
    expect(error.message).toContain(param);
  });
});

test.each(endpoints.map((endpoint) => [endpoint.path, endpoint] as const))(
  "%s refuses an empty object",
  (_, endpoint) => {
    const error = errorOf(() => viewOf(endpoint, {}));
    expect(error.code).toBe("missing_field");
    expect(error.param).toBeDefined();
  },
);

test("an error of one body leaves nothing behind for the next", () => {
  const good = bytesOf(smallChat);
  const before = readRequestView(chat, good, limits);
  for (const bad of ["", "{", '{"a":"', '{"model":"a","model":"b"}', "[[[[[", '{"__proto__":{"polluted":1}}']) {
    errorOf(() => viewOf(chat, bad));
  }
  expect(readRequestView(chat, good, limits)).toEqual(before);
  expect(({} as Record<string, unknown>).polluted).toBeUndefined();
});
