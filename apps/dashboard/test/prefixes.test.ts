import { expect, test } from "vitest";
import { classesText, drainLossOf, modelsOf, prefixRows } from "../src/model/prefixes.ts";
import { followSessions } from "../src/model/sessions.ts";
import { decision } from "./fixtures.ts";

const holder = (target: string, isReported: boolean, isPredicted: boolean) => ({ target, isReported, isPredicted });
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

test("who asks for a prefix, and which model it is of: that of the requests, or of the engines that have it", () => {
  const by = [
    { model: "big", class: "batch", requests: 3 },
    { model: "big", class: "interactive", requests: 12 },
    { model: "small", class: null, requests: 1 },
  ];
  const users = { sinceMs: 7, requests: 16, by, sessions: ["s1"] };
  const [asked, quiet] = prefixRows({
    blockSize: 1,
    prefixes: [
      { ...prefix("x", 1, null, [holder("a", true, true)]), users },
      prefix("y", 1, null, [holder("b", true, true)]),
    ],
  });
  expect(asked?.users).toEqual(users);
  expect(classesText(asked!.users)).toBe("interactive 12, batch 3, not queued 1");
  expect(quiet?.users).toEqual({ sinceMs: 0, requests: 0, by: [], sessions: [] });
  const engines = [
    { key: "a", models: ["tiny"] },
    { key: "b", models: ["tiny", "lora"] },
  ];
  expect([asked, quiet].map((row) => modelsOf(row!, engines))).toEqual([
    ["big", "small"],
    ["tiny", "lora"],
  ]);
});

test("a drain loses what no other engine has, and moves the sessions that were there last", () => {
  const [a, both] = [holder("a", true, true), [holder("a", true, true), holder("b", true, false)]];
  const rows = prefixRows({
    blockSize: 16,
    prefixes: [prefix("shared", 10, null, both), prefix("own", 40, 0, [a]), prefix("alone", 5, null, [a])],
  });
  const to = (session: string, target: string, atMs: number) => decision({ session, target, atMs });
  const sessions = followSessions(new Map(), [to("1", "a", 1), to("2", "a", 2), to("2", "b", 3)]);
  expect(drainLossOf("a", rows, sessions)).toEqual({ prefixes: 2, tokens: 30 * 16 + 5 * 16, sessions: 1 });
  expect(drainLossOf("b", rows, sessions)).toEqual({ prefixes: 0, tokens: 0, sessions: 1 });
});
