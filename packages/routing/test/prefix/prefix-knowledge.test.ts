import { asTargetIndex } from "@espalier/core";
import type { FeedQuality } from "@espalier/shared-tree";
import { blockSize, promptOf, tokensOf } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { maxKnownTargets } from "../../src/prefix/prefix-knowledge.ts";
import { knowledgeRig, type RigOptions, type Seen, targetLike, ttlMs } from "./knowledge-rig.ts";

const [first, second] = [asTargetIndex(0), asTargetIndex(1)];
const prompt = promptOf(tokensOf("a", 100));
const other = promptOf(tokensOf("b", 100));
const nothing = { gpu: 0, cpu: 0, disk: 0, external: 0, pooled: 0, ageMs: Number.NaN };

describe("what a target is thought to hold", () => {
  test("of a prompt that nobody saw it holds nothing, and its room is unknown where events tell all", () => {
    const { see, announce } = knowledgeRig({ quality: "complete" });
    announce(other, 0, 5);
    expect(see(prompt)).toEqual({ ...nothing, held: Number.NaN });
  });

  test.each<[FeedQuality, number, number]>([
    ["complete", 48, Number.NaN],
    ["partial", 48, 0],
    ["void", 0, 0],
    ["none", 0, 0],
  ])("announced blocks of a feed that is %s count as %i tokens, and %i in all", (quality, gpu, held) => {
    const { see, announce } = knowledgeRig({ quality });
    announce(prompt, 0, 3);
    expect(see(prompt)).toEqual({ ...nothing, gpu, held });
  });

  test.each<{ name: string; facts: number; placed: number; gpu: number; ageMs: number }>([
    { name: "facts alone", facts: 3, placed: 0, gpu: 48, ageMs: Number.NaN },
    { name: "a guess alone", facts: 0, placed: 3, gpu: 48, ageMs: 500 },
    { name: "a guess that is deeper", facts: 2, placed: 5, gpu: 80, ageMs: 500 },
    { name: "facts that are deeper", facts: 5, placed: 2, gpu: 80, ageMs: Number.NaN },
    { name: "both as deep: the fact tells its own age", facts: 4, placed: 4, gpu: 64, ageMs: Number.NaN },
  ])("$name", ({ facts, placed, gpu, ageMs }) => {
    const { see, announce, index, time, target } = knowledgeRig({ quality: "partial" });
    announce(prompt, 0, facts);
    index.place(target.index, prompt.chain, placed, { nowMs: 0, ttlMs });
    time.advance(500);
    expect(see(prompt)).toMatchObject({ gpu, ageMs });
  });

  test("a prompt of no full block is held by nobody", () => {
    const { see, announce } = knowledgeRig({ quality: "complete" });
    announce(prompt, 0, 3);
    expect(see(promptOf(tokensOf("a", 15)))).toEqual({ ...nothing, held: Number.NaN });
  });
});

describe("lower tiers add what begins where the GPU ends", () => {
  test("each tier has its own column", () => {
    const { see, announce } = knowledgeRig({ quality: "complete" });
    announce(prompt, 0, 2);
    announce(prompt, 2, 3, "cpu");
    announce(prompt, 3, 5, "disk");
    // Engines look a prompt up there from its beginning.
    announce(prompt, 0, 6, "external");
    expect(see(prompt)).toEqual({ ...nothing, gpu: 32, cpu: 16, disk: 32, external: 16, held: Number.NaN });
  });

  test.each<[number, Partial<Seen>]>([
    [3, { gpu: 48, cpu: 16, disk: 32 }],
    [4, { gpu: 64, cpu: 0, disk: 32 }],
    [5, { gpu: 80, cpu: 0, disk: 16 }],
    [6, { gpu: 96, cpu: 0, disk: 0 }],
  ])("a guess of %i blocks reaches into them, and nothing counts twice", (placed, seen) => {
    const { see, announce, index, target } = knowledgeRig({ quality: "complete" });
    announce(prompt, 0, 2);
    announce(prompt, 2, 4, "cpu");
    announce(prompt, 4, 6, "disk");
    index.place(target.index, prompt.chain, placed, { nowMs: 0, ttlMs });
    expect(see(prompt)).toMatchObject(seen);
  });

  test.each<FeedQuality>(["void", "none"])("they are believed no more than the GPU when the feed is %s", (quality) => {
    const { see, announce } = knowledgeRig({ quality });
    announce(prompt, 0, 6, "cpu");
    expect(see(prompt)).toMatchObject({ gpu: 0, cpu: 0 });
  });
});

test.each<{ dialect: "sglang" | "vllm"; engineBlock: number; cpu: number }>([
  { dialect: "sglang", engineBlock: 8, cpu: 0 },
  { dialect: "sglang", engineBlock: 4, cpu: 12 },
  { dialect: "vllm", engineBlock: 8, cpu: 8 },
])("$dialect with blocks of $engineBlock tokens loads $cpu from CPU memory: HiCache leaves fewer than 10", (loads) => {
  const { see, announce, target } = knowledgeRig({ quality: "complete", engineBlock: loads.engineBlock });
  target.signals.dialect = loads.dialect;
  const whole = promptOf(tokensOf("a", 96));
  announce(whole, 0, 5);
  announce(whole, 5, 6, "cpu");
  expect(see(whole)).toMatchObject({ gpu: 80, cpu: loads.cpu });
});

describe("depths are cut to what the engine can use", () => {
  test.each<{ name: string; tokens: number; depth: number; engineBlock?: number; usable: number }>([
    { name: "blocks of the index where the engine's are not known", tokens: 100, depth: 3, usable: 48 },
    { name: "larger blocks of the engine", tokens: 200, depth: 5, engineBlock: 32, usable: 64 },
    { name: "smaller blocks of the engine", tokens: 200, depth: 5, engineBlock: 4, usable: 80 },
    { name: "blocks that are no multiple", tokens: 200, depth: 5, engineBlock: 24, usable: 72 },
    { name: "an engine block of more than is held", tokens: 200, depth: 3, engineBlock: 64, usable: 0 },
    { name: "the last token is always computed", tokens: 96, depth: 6, usable: 80 },
    { name: "by blocks of one token too", tokens: 96, depth: 6, engineBlock: 1, usable: 95 },
    { name: "one more token than full blocks", tokens: 97, depth: 6, usable: 96 },
    { name: "a whole prompt of one block", tokens: 16, depth: 1, usable: 0 },
    { name: "an engine that tells a block size of 0", tokens: 100, depth: 3, engineBlock: 0, usable: 48 },
  ])("$name", ({ tokens, depth, engineBlock = Number.NaN, usable }) => {
    const { see, announce } = knowledgeRig({ quality: "complete", engineBlock });
    const whole = promptOf(tokensOf("a", tokens));
    announce(whole, 0, depth);
    expect(see(whole).gpu).toBe(usable);
  });

  test("tiers are cut at their ends, so that they add up to whole blocks of the engine", () => {
    const { see, announce } = knowledgeRig({ quality: "complete", engineBlock: 32 });
    announce(prompt, 0, 3);
    announce(prompt, 3, 5, "cpu");
    announce(prompt, 5, 6, "disk");
    expect(see(prompt)).toMatchObject({ gpu: 32, cpu: 32, disk: 32 });
  });

  test("the estimate of a prompt in bytes has no last token to leave out", () => {
    const { see, index, target } = knowledgeRig();
    const bytes = promptOf(tokensOf("a", 64), { from: "bytes" });
    index.place(target.index, bytes.chain, 4, { nowMs: 0, ttlMs });
    expect(see(bytes).gpu).toBe(64);
  });

  test("a partial prompt goes on past its blocks, so all of them can be had", () => {
    const { see, announce } = knowledgeRig({ quality: "complete" });
    const beginning = { ...promptOf(tokensOf("a", 64), { from: "partial" }), tokens: 1_000 };
    announce(beginning, 0, 4);
    expect(see(beginning).gpu).toBe(64);
  });
});

test("targets past the bound have nothing known or kept of them", () => {
  const { knowledge, see, index, time } = knowledgeRig({ quality: "complete" });
  const [last, beyond] = [targetLike(maxKnownTargets - 1, {}), targetLike(maxKnownTargets, {})];
  for (const target of [last, beyond]) {
    const placement = knowledge.place(target, prompt, 0);
    placement.computed();
    placement.answered(0);
    placement.withdraw();
    knowledge.place(target, prompt, 0);
  }
  time.advance(1);
  expect(see(prompt, last)).toMatchObject({ gpu: 96, ageMs: 1 });
  expect(see(prompt, beyond)).toEqual({ ...nothing, held: Number.NaN });
  for (const { index: target } of [beyond, last]) {
    knowledge.forgetPlacements(target);
    knowledge.forget(target);
  }
  expect(index.placements.placedBlocks).toBe(0);
});

describe("a new epoch of the engine", () => {
  test("forgetting a target voids its facts and guesses, and nobody else's", () => {
    const { knowledge, see, announce, index } = knowledgeRig({ quality: "complete" });
    announce(prompt, 0, 2);
    announce(prompt, 2, 4, "cpu");
    for (const target of [first, second]) index.place(target, prompt.chain, 5, { nowMs: 0, ttlMs });
    knowledge.forget(first);
    expect(see(prompt)).toEqual({ ...nothing, held: Number.NaN });
    expect(see(prompt, targetLike(second, {})).gpu).toBe(80);
  });

  test("guesses can be forgotten alone: what the events told stays", () => {
    const { knowledge, see, announce, index, target } = knowledgeRig({ quality: "complete" });
    announce(prompt, 0, 2);
    index.place(target.index, prompt.chain, 5, { nowMs: 0, ttlMs });
    knowledge.forgetPlacements(target.index);
    expect(see(prompt)).toEqual({ ...nothing, gpu: 32, held: Number.NaN });
  });
});

describe("the capacity of a target", () => {
  const long = promptOf(tokensOf("a", 100 * blockSize));

  test.each<{ name: string; options: RigOptions; blocks: number }>([
    { name: "by its metrics", options: { engineBlock: 32, engineBlocks: 10, placementTokens: 100_000 }, blocks: 20 },
    { name: "an odd one is rounded up", options: { engineBlock: 5, engineBlocks: 5 }, blocks: 2 },
    { name: "without metrics by the configuration", options: { placementTokens: 160 }, blocks: 10 },
    { name: "metrics with half of it", options: { engineBlock: 32, placementTokens: 160 }, blocks: 10 },
    { name: "an engine that says it has none keeps one", options: { engineBlock: 16, engineBlocks: 0 }, blocks: 1 },
  ])("$name", ({ options, blocks }) => {
    const { knowledge, target, index } = knowledgeRig(options);
    knowledge.place(target, long, 0);
    expect(index.placements.blockCount(target.index)).toBe(blocks);
  });

  test("what was used longest ago goes for what is new", () => {
    const { knowledge, target, see, time } = knowledgeRig({ engineBlock: blockSize, engineBlocks: 8 });
    knowledge.place(target, prompt, 0);
    time.advance(1);
    knowledge.place(target, other, 0);
    expect(see(other).gpu).toBe(96);
    expect(see(prompt).gpu).toBe(32);
  });

  test("it follows the metrics as they come", () => {
    const { knowledge, index, target } = knowledgeRig({ engineBlock: 16, engineBlocks: 4 });
    knowledge.place(target, long, 0);
    expect(index.placements.blockCount(target.index)).toBe(4);
    target.signals.blockCount = 30;
    knowledge.place(target, long, 0);
    expect(index.placements.blockCount(target.index)).toBe(30);
  });
});
