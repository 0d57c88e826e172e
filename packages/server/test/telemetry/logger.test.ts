import { EspalierError } from "@espalier/core";
import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { expect, test } from "vitest";
import type { LogLevel } from "../../src/telemetry/index.ts";
import { captureLog, startTime } from "./captured-log.ts";

test("a line is one JSON object with time, level, message and fields", () => {
  const { logger, written, lines } = captureLog();
  logger.info("engine is up", { engine: "a", failures: 0, ready: true, until: null });
  expect(written).toHaveLength(1);
  expect(written[0]).toMatch(/^\{.*\}\n$/);
  expect(lines()).toEqual([
    { time: startTime, level: "info", msg: "engine is up", engine: "a", failures: 0, ready: true, until: null },
  ]);
});

test.each<[LogLevel, LogLevel[]]>([
  ["debug", ["debug", "info", "warn", "error"]],
  ["info", ["info", "warn", "error"]],
  ["warn", ["warn", "error"]],
  ["error", ["error"]],
])("at level %s the lines of %j are written", (level, expected) => {
  const { logger, lines } = captureLog({ level });
  for (const each of ["debug", "info", "warn", "error"] as const) logger[each]("hello");
  expect(lines().map((line) => line.level)).toEqual(expected);
});

test("children add their fields, and a line's own fields win without standing twice", () => {
  const { logger, written, lines } = captureLog();
  const child = logger.child({ part: "proxy", engine: "a" }).child({ engine: "b" });
  child.info("sent", { part: "retry" });
  child.info("plain");
  logger.info("parent");
  expect(lines()).toEqual([
    { time: startTime, level: "info", part: "retry", engine: "b", msg: "sent" },
    { time: startTime, level: "info", part: "proxy", engine: "b", msg: "plain" },
    { time: startTime, level: "info", msg: "parent" },
  ]);
  expect(written[0]?.match(/"part"/g)).toHaveLength(1);
});

test("a percent sign in a message is text, not a format", () => {
  const { logger, lines } = captureLog();
  logger.info("100%s of %d %j", { a: 1 });
  expect(lines()[0]?.msg).toBe("100%s of %d %j");
});

test("an error keeps name, code, message, stack and cause, and loses everything else", () => {
  const { logger, lines } = captureLog();
  const cause = Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED", body: "the prompt" });
  logger.error("request failed", { error: new EspalierError("upstream_connect_failed", "no way", { cause }) });
  expect(lines()[0]?.error).toEqual({
    name: "EspalierError",
    code: "upstream_connect_failed",
    message: "no way",
    stack: expect.stringContaining("logger.test.ts"),
    cause: {
      name: "Error",
      code: "ECONNREFUSED",
      message: "connect ECONNREFUSED",
      stack: expect.stringContaining("connect ECONNREFUSED"),
    },
  });
});

test("an error under the key err, which pino serialises itself, gets no other treatment", () => {
  const { logger, lines } = captureLog();
  logger.error("failed", { err: Object.assign(new TypeError("no"), { body: "the prompt" }) });
  expect(Object.keys(lines()[0]?.err as object)).toEqual(["name", "message", "stack"]);
});

test("each error of an aggregate is kept, as a refused dual-stack connection throws them", () => {
  const { logger, lines } = captureLog();
  const parts = ["::1", "127.0.0.1"].map((host) => Object.assign(new Error(host), { code: "ECONNREFUSED" }));
  logger.warn("refused", { error: new AggregateError(parts) });
  expect(lines()[0]).toMatchObject({
    error: {
      name: "AggregateError",
      errors: [
        { code: "ECONNREFUSED", message: "::1" },
        { code: "ECONNREFUSED", message: "127.0.0.1" },
      ],
    },
  });
});

test.each([
  "key",
  "apiKey",
  "api-key",
  "api_key",
  "API_KEY",
  "x-api-key",
  "engineApiKey",
  "Authorization",
  "secret",
  "clientSecret",
  "token",
  "accessToken",
  "password",
  "set-cookie",
  "prompt",
  "messages",
  "body",
  "requestBody",
  "content",
  "APIKey",
])("the value under %s is redacted at each depth", (key) => {
  const { logger, written, lines } = captureLog();
  const held = { [key]: "hunter2" };
  logger.info("x", { ...held, one: held, two: { nested: held }, list: [held] });
  logger.child(held).info("y");
  expect(written.join("")).not.toContain("hunter2");
  expect(lines()[0]).toMatchObject({ [key]: "[redacted]", one: { [key]: "[redacted]" } });
  expect(lines()[1]).toMatchObject({ [key]: "[redacted]" });
});

test.each(["tokens", "promptTokens", "tokenCount", "bodyBytes", "contentType", "keyCount", "monkey", "message"])(
  "the value under %s is kept",
  (key) => {
    const { logger, lines } = captureLog();
    logger.info("x", { [key]: 12 });
    expect(lines()[0]?.[key]).toBe(12);
  },
);

test("an object within the third is cut, so that a key below cannot slip out", () => {
  const { logger, lines } = captureLog();
  logger.info("x", { second: { third: { fourth: { anything: "hunter2" }, list: [["hunter2"]], kept: 3 } } });
  expect(lines()[0]?.second).toEqual({ third: { fourth: "[deeper]", list: "[deeper]", kept: 3 } });
});

test("an object that holds itself is cut as well", () => {
  const { logger, lines } = captureLog();
  const loop: Record<string, unknown> = { name: "loop" };
  loop.self = loop;
  logger.info("x", { loop });
  expect(lines()[0]?.loop).toEqual({ name: "loop", self: { name: "loop", self: "[deeper]" } });
});

test("an object with toJSON speaks for itself, as one that wraps a secret does", () => {
  const { logger, lines } = captureLog();
  const wrapped = { hidden: "hunter2", toJSON: () => "***" };
  logger.info("x", { wrapped, at: new Date(0) });
  expect(lines()[0]).toMatchObject({ wrapped: "***", at: "1970-01-01T00:00:00.000Z" });
});

test.each([
  ["a big integer", 12345678901234567890n, "12345678901234567890"],
  ["a number that JSON has not", Number.NaN, "NaN"],
  ["a symbol", Symbol("s"), "Symbol(s)"],
  ["bytes", Buffer.from("hunter2"), "[7 bytes]"],
  ["a map", new Map([["key", "hunter2"]]), "[1 entries]"],
  ["a getter that throws", Object.defineProperty({}, "bad", { enumerable: true, get: fail }), { bad: "[unreadable]" }],
  ["a toJSON that throws", { toJSON: fail }, "[unreadable]"],
])("%s is written in a harmless form", (_, value, expected) => {
  const { logger, lines } = captureLog();
  logger.info("x", { value });
  expect(lines()[0]?.value).toEqual(expected);
});

function fail(): never {
  throw new Error("hunter2");
}

test("fields cannot pose as the line's own time, level or message", () => {
  const { logger, written, lines } = captureLog();
  logger.info("true message", { level: "error", time: "never", msg: "forged" });
  expect(lines()[0]).toEqual({
    time: startTime,
    level: "info",
    msg: "true message",
    level_: "error",
    time_: "never",
    msg_: "forged",
  });
  expect(written[0]?.match(/"(level|time|msg)":/g)).toHaveLength(3);
});

test("line breaks and quotes in keys, values and messages stay inside their line", () => {
  const { logger, written, lines } = captureLog();
  const hostile = 'a"}\n{"level":"error","msg":"forged"}\r\n\u0000';
  logger.info(hostile, { [hostile]: hostile, ["__proto__"]: "kept" });
  expect(written).toHaveLength(1);
  expect(written[0]?.indexOf("\n")).toBe((written[0]?.length ?? 0) - 1);
  expect(lines()[0]?.msg).toBe(hostile);
  expect(lines()[0]?.[hostile]).toBe(hostile);
});

test("strings are cut one character past their bound", () => {
  const { logger, lines } = captureLog();
  logger.info("m".repeat(2_048), { fits: "v".repeat(2_048), long: "v".repeat(2_049) });
  logger.info("m".repeat(2_049));
  expect(lines()[0]).toMatchObject({ msg: "m".repeat(2_048), fits: "v".repeat(2_048) });
  expect(lines()[0]?.long).toBe(`${"v".repeat(2_048)}… (1 more)`);
  expect(lines()[1]?.msg).toBe(`${"m".repeat(2_048)}… (1 more)`);
});

test("stacks are cut one character past their bound", () => {
  const { logger, lines } = captureLog();
  const withStack = (length: number) => Object.assign(new Error("x"), { stack: "s".repeat(length) });
  logger.info("x", { fits: withStack(8_192), long: withStack(8_193) });
  expect(lines()[0]).toMatchObject({
    fits: { stack: "s".repeat(8_192) },
    long: { stack: `${"s".repeat(8_192)}… (1 more)` },
  });
});

test("arrays and objects are cut one entry past their bound", () => {
  const { logger, lines } = captureLog();
  const array = (length: number) => Array.from({ length }, (_, at) => at);
  const object = (size: number) => Object.fromEntries(array(size).map((at) => [`k${at}`, at]));
  logger.info("x", { array50: array(50), array51: array(51), object50: object(50), object51: object(51) });
  const line = lines()[0] as Record<string, object>;
  expect(line.array50).toEqual(array(50));
  expect(line.array51).toEqual([...array(50), "… (1 more)"]);
  expect(line.object50).toEqual(object(50));
  expect(line.object51).toEqual({ ...object(50), "…": "1 more" });
});

test("whatever the fields are, a line is one JSON object that keeps its own parts and no secret", () => {
  const field = fc.oneof(
    { maxDepth: 4 },
    fc.anything({ withBigInt: true, withDate: true, withMap: true, withSet: true, withTypedArray: true, maxDepth: 4 }),
    fc.record({ apiKey: fc.constant("hunter2"), list: fc.array(fc.record({ prompt: fc.constant("hunter2") })) }),
  );
  const property = fc.property(fc.string(), fc.dictionary(fc.string(), field), (message, fields) => {
    const { logger, written, lines } = captureLog();
    logger.child(fields).warn(message, fields);
    expect(written).toHaveLength(1);
    expect(written[0]?.trimEnd().includes("\n")).toBe(false);
    expect(written[0]).not.toContain("hunter2");
    expect(lines()[0]).toMatchObject({ time: startTime, level: "warn", msg: message });
  });
  fc.assert(property, { numRuns: randomRuns(300), seed: 5 });
});

test("whatever the fields are, a pretty line has no control characters", () => {
  const property = fc.property(
    fc.string({ unit: "binary" }),
    fc.dictionary(fc.string(), fc.anything()),
    (text, fields) => {
      const { logger, written } = captureLog({ format: "pretty" });
      logger.info(text, { ...fields, text });
      expect(written[0]).toMatch(/^[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]*\n$/u);
    },
  );
  fc.assert(property, { numRuns: randomRuns(300), seed: 6 });
});

// JSON leaves eight-bit controls and separators of lines as they are, which a terminal or a viewer of logs may obey.
test("a JSON line has no control character of any plane, and is read as what was logged", () => {
  const { logger, lines, written } = captureLog();
  const text = "a\n\u001b\u007f\u009b2J\u2028\u202e\u{e0001}b";
  logger.info(text, { text, [text]: 1 });
  expect(written[0]).toMatch(/^[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]*\n$/u);
  expect(lines()[0]).toMatchObject({ msg: text, text, [text]: 1 });
});

test("another level counts from then on, for children too", () => {
  const { logger, lines } = captureLog({ level: "warn" });
  const child = logger.child({ part: "retry" });
  child.info("unheard");
  logger.setLevel("debug");
  child.debug("heard");
  logger.setLevel("error");
  logger.warn("unheard again");
  expect(lines().map(({ msg }) => msg)).toEqual(["heard"]);
});
