import { describe, expect, test } from "vitest";
import { largeBodyBytes, scanInline } from "../../src/large-bodies/large-bodies.ts";

const maxDepth = 64;
const textOf = (sizeBytes: number): Buffer => Buffer.from(`{"prompt":"${"x".repeat(sizeBytes - 13)}"}`);
const valuesOf = (count: number, padBytes: number): Buffer =>
  Buffer.from(`{"pad":"${"x".repeat(padBytes)}","list":[${Array.from({ length: count }, () => "1").join(",")}]}`);
/** Nodes of a body of `valuesOf` besides those of the list: the object, two keys, the text and the list itself. */
const otherValues = 5;

describe("what is scanned on the event loop", () => {
  test("a text up to 1 MiB; a longer one is for the thread", () => {
    expect(scanInline(textOf(1_048_576), maxDepth)?.valueCount).toBe(3);
    expect(scanInline(textOf(1_048_577), maxDepth)).toBeUndefined();
    expect(scanInline(textOf(100), maxDepth)?.valueCount).toBe(3);
  });

  test("up to 16,384 values in a large body; one more is for the thread", () => {
    const most = 16_384 - otherValues;
    expect(scanInline(valuesOf(most, largeBodyBytes), maxDepth)?.valueCount).toBe(16_384);
    expect(scanInline(valuesOf(most + 1, largeBodyBytes), maxDepth)).toBeUndefined();
  });

  test("any number in one that is not large", () => {
    const body = valuesOf(60_000, 0);
    expect(body.length).toBeLessThan(largeBodyBytes);
    expect(scanInline(body, maxDepth)?.valueCount).toBe(60_000 + otherValues);
  });

  test("a fault of a large body is for the thread to tell, of another one it is told at once", () => {
    const broken = (sizeBytes: number): Buffer => textOf(sizeBytes).fill("}", 0, 1);
    const noText = (sizeBytes: number): Buffer => textOf(sizeBytes).fill(0xff, 20, 21);
    for (const fault of [broken, noText]) expect(scanInline(fault(largeBodyBytes + 1), maxDepth)).toBeUndefined();
    expect(() => scanInline(broken(200), maxDepth)).toThrow("not valid JSON");
    expect(() => scanInline(noText(200), maxDepth)).toThrow("UTF-8");
    const deep = Buffer.from(
      `{"a":${"[".repeat(maxDepth)}${"]".repeat(maxDepth)},"pad":"${"x".repeat(largeBodyBytes)}"}`,
    );
    expect(scanInline(deep, maxDepth)).toBeUndefined();
    expect(scanInline(deep, maxDepth + 1)).toBeDefined();
  });
});
