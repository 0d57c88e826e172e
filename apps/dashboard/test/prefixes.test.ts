import { expect, test } from "vitest";
import { prefixRows } from "../src/model/prefixes.ts";

const holder = (target: string, isFact: boolean, isPlaced: boolean) => ({ target, isFact, isPlaced });
const prefix = (hash: string, blocks: number, parent: number | null, holders: readonly object[] = []) => ({
  ...{ hash, blocks, parent, continuations: 2, holders, holderCount: holders.length },
});

test("prefixes stand below those that they continue, in the order in which they are told", () => {
  const rows = prefixRows({
    blockSize: 16,
    prefixes: [
      prefix("tools", 40, 1),
      prefix("system", 10, null),
      prefix("deep", 60, 0),
      prefix("other", 5, null),
      prefix("chat", 12, 1),
    ],
  });
  expect(rows.map(({ hash, depth, tokens, ownTokens }) => [hash, depth, tokens, ownTokens])).toEqual([
    ["system", 0, 160, 160],
    ["tools", 1, 640, 480],
    ["deep", 2, 960, 320],
    ["chat", 1, 192, 32],
    ["other", 0, 80, 80],
  ]);
});

test("holders are told by where it is known from", () => {
  const holders = [holder("a", true, true), holder("b", true, false), holder("c", false, true)];
  const [row] = prefixRows({ blockSize: 1, prefixes: [prefix("x", 1, null, holders)] });
  expect(row?.holders.map(({ target, source }) => [target, source])).toEqual([
    ["a", "both"],
    ["b", "fact"],
    ["c", "placement"],
  ]);
});

test("what makes no tree hangs nothing and leaves the rest", () => {
  const rows = prefixRows({
    blockSize: 1,
    prefixes: [prefix("x", 1, 1), prefix("y", 2, 0), prefix("z", 3, 9), prefix("w", 4, null), 5],
  });
  expect(rows.map(({ hash }) => hash)).toEqual(["w", ""]);
  expect(prefixRows(undefined)).toEqual([]);
});
