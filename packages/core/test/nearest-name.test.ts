import { expect, test } from "vitest";
import { didYouMean, nearestName } from "../src/nearest-name.ts";

const names = ["max-body-bytes", "max-nesting", "listen", "a"];

test.each([
  ["max-body-byte", "max-body-bytes"],
  ["maxBodyBytes", "max-body-bytes"],
  ["MAX_NESTING", "max-nesting"],
  ["max.nesting", "max-nesting"],
  ["lsiten", "listen"],
  ["b", undefined],
  ["", undefined],
  ["something else", undefined],
])("%s means %s", (written, meant) => {
  expect(nearestName(written, names)).toBe(meant);
});

test("of names that are as near the first is meant, and of none none", () => {
  expect(nearestName("lisp", ["list", "lips"])).toBe("list");
  expect(nearestName("lisp", [])).toBeUndefined();
});

test("the fewest edits count, case aside", () => {
  expect(nearestName("RAGS", ["evict", "rag", "smg-240"])).toBe("rag");
  expect(nearestName("evitc", ["evict", "rag"])).toBe("evict");
});

test("half the letters of the longer one may differ, not more", () => {
  expect(nearestName("abcd", ["abxy"])).toBe("abxy");
  expect(nearestName("abcd", ["axyz"])).toBeUndefined();
});

test("only the first 100 letters are compared", () => {
  expect(nearestName(`${"x".repeat(100)}${"y".repeat(10_000)}`, ["x".repeat(100)])).toBe("x".repeat(100));
  expect(nearestName("x".repeat(1_000_000), names)).toBeUndefined();
});

test("what was renamed has its name of today, where there is one of that name", () => {
  expect(didYouMean("patience", ["max-cold-wait", "patient"])).toBe("; renamed to max-cold-wait");
  expect(didYouMean("patience", ["patient"])).toBe("; did you mean patient?");
});
