import { expect, test } from "vitest";
import { maxBranches, pathTo, treeOf } from "../src/model/prefix-tree.ts";
import type { PrefixRow } from "../src/model/prefixes.ts";

const row = (hash: string, depth: number, tokens: number): PrefixRow => ({
  ...{ hash, depth, tokens, ownTokens: tokens, continuations: 2, holders: [], holderCount: 1 },
  users: { sinceMs: 0, requests: 0, by: [], sessions: [] },
});
const rows = [row("a", 0, 100), row("b", 1, 400), row("c", 2, 1_600), row("d", 1, 200), row("e", 0, 25)];

test("a branch goes from where its parent ends to where it ends itself, each on a line of its own", () => {
  expect(
    treeOf(rows).map(({ row: { hash }, ...at }) => [hash, at.fromLine, at.line, at.fromShare, at.toShare]),
  ).toEqual([
    ["a", 0, 0, 0, 0.25],
    ["b", 0, 1, 0.25, 0.5],
    ["c", 1, 2, 0.5, 1],
    ["d", 0, 3, 0.25, Math.sqrt(1 / 8)],
    ["e", 4, 4, 0, 0.125],
  ]);
  expect(treeOf([])).toEqual([]);
});

test("a picture has so many branches, and not one more", () => {
  const many = Array.from({ length: maxBranches + 1 }, (_, at) => row(String(at), 0, 16));
  expect(treeOf(many)).toHaveLength(maxBranches);
});

test("the way to a prefix leads over those that it continues, and back from there", () => {
  const names = (hash: string, path: Parameters<typeof pathTo>[1], shown = rows) =>
    pathTo(hash, path, shown).map((step) => step.hash);
  const way = pathTo("c", [], rows);
  expect(way.map(({ hash, tokens }) => [hash, tokens])).toEqual([
    ["a", 100],
    ["b", 400],
    ["c", 1_600],
  ]);
  const below = [row("c", 0, 1_600), row("f", 1, 1_700), row("g", 2, 1_800)];
  expect(names("g", way, below)).toEqual(["a", "b", "c", "f", "g"]);
  expect(names("b", way, below)).toEqual(["a", "b"]);
  expect(names("d", [], rows)).toEqual(["a", "d"]);
  // An address that was kept from another day.
  expect(names("z", way, below)).toEqual(["z"]);
});
