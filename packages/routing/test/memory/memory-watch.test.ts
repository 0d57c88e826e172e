import { createPrefixIndex, tier } from "@espalier/prefix-index";
import type { FeedQuality } from "@espalier/shared-tree";
import { blockSize, createVirtualTime, promptOf, tokensOf } from "@espalier/testing";
import { expect, test } from "vitest";
import { MemoryWatch, maxVictims } from "../../src/memory/memory-watch.ts";
import type { PromptUse } from "../../src/memory/recent-uses.ts";
import { scriptedTarget } from "../scripted-target.ts";

interface RigOptions {
  readonly blockCount?: number;
  readonly quality?: FeedQuality;
}

/** An engine of a hundred blocks, each prompt of which is named by a letter and has as many as are said. */
function rigOf({ blockCount = 100, quality = "complete" }: RigOptions = {}) {
  const time = createVirtualTime();
  const index = createPrefixIndex({ maxTargets: 4 });
  const watch = new MemoryWatch({ clock: time.clock, index, feedQualityOf: () => quality });
  const target = scriptedTarget(0, "engine", { signals: { blockSize, blockCount } });
  const text = (letter: string, blocks: number) => promptOf(tokensOf(letter, blockSize * blocks));
  return {
    ...{ time, index, watch },
    /** It is sent, and the engine's events tell that it is there. */
    send(letter: string, blocks: number, isOwn = true): void {
      const { chain } = text(letter, blocks);
      watch.sent(0, chain, blocks, isOwn);
      index.storeFacts(0, tier.gpu, chain, 0, blocks);
    },
    arrive: (letter: string, blocks: number) => watch.arrived(text(letter, blocks)),
    /** The engine drops a prompt. */
    evict: (letter: string, blocks: number) => index.removeFacts(0, tier.gpu, text(letter, blocks).chain, 0, blocks),
    loss: (blocks: number, before?: PromptUse) => watch.lossShare(target, blocks * blockSize, before),
    /** Elsewhere, people have gone on with prompts after so long. */
    seen(gapMs: number): void {
      const words = new Uint32Array(2);
      for (let count = 1; count <= 20; count++) {
        words[0] = count;
        watch.sent(1, words, 1, true);
      }
      time.advance(gapMs);
      for (let count = 1; count <= 20; count++) {
        words[0] = count;
        watch.arrived({ ...text("a", 1), chain: words.slice() });
      }
    },
  };
}

/** Five prompts of 20 blocks: the engine is full. */
function fullRig(options: RigOptions = {}) {
  const rig = rigOf(options);
  rig.seen(20_000);
  for (const letter of ["a", "b", "c", "d", "e"]) {
    rig.send(letter, 20);
    rig.time.advance(3_000);
  }
  return rig;
}

test("an engine with room loses nothing", () => {
  const { send, seen, loss } = rigOf();
  seen(20_000);
  send("a", 80);
  expect([loss(1), loss(20)]).toEqual([0, 0]);
  expect(loss(21)).toBeGreaterThan(0);
});

test("a full one loses what was used longest ago: nothing once that has been idle for longer than anybody was", () => {
  const { loss, time } = fullRig();
  // All of them are expected back: those that went on were away for 20 s, and "a" has been for 15 s.
  expect(loss(20)).toBeGreaterThan(0.7);
  time.advance(11_000);
  expect(loss(20)).toBe(0);
  // Of two, "b" has been idle for 23 s.
  expect(loss(40)).toBe(0);
  expect(loss(100)).toBeGreaterThan(0.4);
});

test("what its events do not tell completely, nothing is said of", () => {
  for (const quality of ["partial", "void", "none"] as const) expect(fullRig({ quality }).loss(20)).toBe(0);
  expect(fullRig({ blockCount: Number.NaN }).loss(20)).toBe(0);
});

test("somebody who is back already is sure to need what is there", () => {
  const { loss, time, arrive } = fullRig();
  time.advance(60_000);
  expect(loss(20)).toBe(0);
  arrive("a", 22);
  expect(loss(20)).toBe(1);
  expect(loss(40)).toBe(0.5);
});

test("what a prompt itself goes on with is not lost to it", () => {
  const { loss, time, arrive, watch } = fullRig();
  time.advance(60_000);
  arrive("a", 22);
  expect([loss(20), loss(20, watch.before(promptOf(tokensOf("a", blockSize * 22))))]).toEqual([1, 0]);
});

test("what went on elsewhere is not needed here any more", () => {
  const { loss, watch } = fullRig();
  const { chain } = promptOf(tokensOf("a", blockSize * 24));
  watch.sent(1, chain, 24, true);
  expect(loss(20)).toBe(0);
});

test("prompts that the engine has dropped are not dropped again", () => {
  const { loss, evict, send, time, arrive } = fullRig();
  time.advance(60_000);
  arrive("b", 22);
  evict("a", 20);
  send("z", 20);
  // The next in line is "b", which somebody waits with.
  expect(loss(20)).toBe(1);
});

test("blocks that nothing is remembered of are older than what is, and go first", () => {
  const rig = fullRig({ blockCount: 140 });
  const { chain } = promptOf(tokensOf("q", blockSize * 40));
  rig.index.storeFacts(0, tier.gpu, chain, 0, 40);
  expect(rig.loss(40)).toBe(0);
  expect(rig.loss(80)).toBeGreaterThan(0.3);
});

test("prompts that nobody goes on with teach that", () => {
  const rig = rigOf({ blockCount: 1_000 });
  rig.seen(20_000);
  for (let count = 0; count < 50; count++) {
    rig.send(String.fromCharCode(0x4e00 + count), 20);
    rig.time.advance(500);
  }
  // The oldest is 25 s old and 20 people went on after 20 s, but half of the others have been idle for longer than that.
  rig.time.advance(20_000);
  expect(rig.loss(20)).toBe(0);
  rig.seen(1_000);
  expect(rig.loss(200)).toBeLessThan(0.2);
});

test("prompts of other routers are known of, and do not count among those that this one waits for", () => {
  const rig = rigOf({ blockCount: 1_000 });
  rig.seen(20_000);
  for (let count = 0; count < 50; count++) rig.send(String.fromCharCode(0x4e00 + count), 20, false);
  rig.time.advance(5_000);
  expect(rig.loss(20)).toBe(1);
});

test("after ten minutes nobody is expected", () => {
  const { loss, time, arrive } = fullRig();
  arrive("a", 22);
  time.advance(601_000);
  expect(loss(20)).toBe(0);
});

test("one question looks at a bounded number of prompts", () => {
  const rig = rigOf({ blockCount: maxVictims + 10 });
  rig.seen(20_000);
  const words = new Uint32Array(2);
  for (let count = 0; count < maxVictims + 10; count++) {
    words[0] = 1_000 + count;
    rig.watch.sent(0, words, 1, true);
    rig.index.storeFacts(0, tier.gpu, words, 0, 1);
  }
  for (let count = 0; count < maxVictims + 10; count++) {
    words[0] = 1_000 + count;
    rig.watch.arrived({ ...promptOf(tokensOf("a", blockSize)), chain: words.slice() });
  }
  expect(rig.loss(maxVictims)).toBe(1);
  expect(rig.loss(maxVictims + 10)).toBeCloseTo(maxVictims / (maxVictims + 10));
});

test("a prompt that its client has ended is not expected to be used again", () => {
  const rig = fullRig();
  const before = rig.loss(20);
  expect(before).toBeGreaterThan(0.5);
  rig.watch.ended(rig.watch.keyOf(promptOf(tokensOf("a", blockSize * 20)))!);
  expect(rig.loss(20)).toBe(0);
  expect(rig.watch.keyOf(promptOf(tokensOf("a", 1)))).toBeUndefined();
});
