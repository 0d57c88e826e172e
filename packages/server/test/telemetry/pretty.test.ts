import { EspalierError } from "@espalier/core";
import { expect, test } from "vitest";
import { captureLog } from "./captured-log.ts";

test("the pretty form is time of day, level, message and fields on one line", () => {
  const { logger, written } = captureLog({ format: "pretty" });
  logger.warn("engine is down", {
    engine: "http-10",
    failures: 3,
    models: ["a", "b"],
    url: "http://x",
    note: "two words",
  });
  expect(written).toEqual([
    '22:13:20.000Z WARN  engine is down engine=http-10 failures=3 models=["a","b"] url=http://x note="two words"\n',
  ]);
});

test.each([
  ["an empty string", "", '""'],
  ["a quote", 'say "hi"', '"say \\"hi\\""'],
  ["an equals sign", "a=b", '"a=b"'],
  ["nothing", null, "null"],
  ["an object", { a: 1 }, '{"a":1}'],
])("%s is readable as a value", (_, value, expected) => {
  const { logger, written } = captureLog({ format: "pretty" });
  logger.info("x", { value });
  expect(written[0]).toBe(`22:13:20.000Z INFO  x value=${expected}\n`);
});

test("an error shows its code, message and where it was thrown, without the whole stack", () => {
  const { logger, written } = captureLog({ format: "pretty" });
  logger.error("failed", { error: new EspalierError("upstream_reset", "gone") });
  logger.error("failed", { error: new TypeError("odd") });
  expect(written[0]).toMatch(
    /^22:13:20\.000Z ERROR failed error="upstream_reset: gone at .*pretty\.test\.ts:\d+:\d+\)?"\n$/,
  );
  expect(written[1]).toMatch(/error="TypeError: odd at /);
});

test("colour codes appear only when asked for", () => {
  const plain = captureLog({ format: "pretty" });
  const coloured = captureLog({ format: "pretty", coloured: true });
  for (const { logger } of [plain, coloured]) logger.error("x");
  expect(plain.written[0]).toBe("22:13:20.000Z ERROR x\n");
  expect(coloured.written[0]).toBe("22:13:20.000Z \u001b[31mERROR\u001b[39m x\n");
});

test("a message without text leaves no gap", () => {
  const { logger, written } = captureLog({ format: "pretty" });
  logger.info("", { a: 1 });
  expect(written[0]).toBe("22:13:20.000Z INFO  a=1\n");
});

test.each([
  ["a new line", "a\nb", "a\\u000ab"],
  ["a carriage return", "a\rb", "a\\u000db"],
  ["an escape sequence", "a\u001b[2Jb", "a\\u001b[2Jb"],
  ["an eight-bit control", "a\u009b2Jb", "a\\u009b2Jb"],
  ["a line separator", "a\u2028b", "a\\u2028b"],
  ["a reversal of direction", "a\u202eb", "a\\u202eb"],
])("%s in a message or key cannot steer the terminal", (_, hostile, shown) => {
  const { logger, written } = captureLog({ format: "pretty" });
  logger.info(hostile, { [hostile]: 1 });
  expect(written).toEqual([`22:13:20.000Z INFO  ${shown} ${shown}=1\n`]);
});

test.each(["a\nb", "a\u001b[2Jb", "a\u009b2Jb", "a\u2028b", "a\u202eb"])(
  "%j in a value cannot steer it either",
  (hostile) => {
    const { logger, written } = captureLog({ format: "pretty" });
    logger.info("x", { value: hostile, list: [hostile], error: new Error(hostile) });
    expect(written[0]).toMatch(/^[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]*\n$/u);
  },
);

test("secrets are redacted in the pretty form too", () => {
  const { logger, written } = captureLog({ format: "pretty" });
  logger.info("x", { key: "hunter2", nested: { token: "hunter2" } });
  expect(written[0]).toBe('22:13:20.000Z INFO  x key=[redacted] nested={"token":"[redacted]"}\n');
});
