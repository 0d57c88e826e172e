import { createSeededRandom } from "@espalier/core";
import type { FeedQuality } from "@espalier/shared-tree";
import { blockSize, fixedSeeds, joinTokens, promptOf, tokensOf } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import type { PromptBlocks } from "../../src/prefix/prompt-blocks.ts";
import { type KnowledgeRig, knowledgeRig, targetLike, ttlMs } from "./knowledge-rig.ts";

const prompt = promptOf(tokensOf("a", 100));
const inBytes = promptOf(tokensOf("a", 100), { from: "bytes" });
const beginning = promptOf(tokensOf("a", 100), { from: "partial" });
const empty = promptOf(tokensOf("a", 15));

/** After how many milliseconds from now the prompt is not believed to be there any more; in steps of half a second. */
function endsAfterMs({ time, see }: KnowledgeRig, of: PromptBlocks): number {
  const stepMs = 500;
  let passedMs = 0;
  for (; passedMs < 2 * ttlMs && see(of).gpu > 0; passedMs += stepMs) time.advance(stepMs);
  return passedMs;
}

describe("how long a guess is believed", () => {
  test.each<{ quality: FeedQuality; of: PromptBlocks; name: string; lastsMs: number }>([
    { name: "tokens", of: prompt, quality: "partial", lastsMs: 600_000 },
    { name: "tokens", of: prompt, quality: "complete", lastsMs: 10_000 },
    { name: "the beginning", of: beginning, quality: "complete", lastsMs: 10_000 },
    { name: "bytes, which no event tells of,", of: inBytes, quality: "complete", lastsMs: 600_000 },
  ])("$name at a target whose feed is $quality: $lastsMs ms from the dispatch", ({ quality, of, lastsMs }) => {
    const { knowledge, target, time, see } = knowledgeRig({ quality });
    knowledge.place(target, of, 0);
    time.advance(lastsMs - 1);
    expect(see(of)).toMatchObject({ gpu: 96, ageMs: lastsMs - 1 });
    time.advance(1);
    expect(see(of)).toMatchObject({ gpu: 0, ageMs: Number.NaN });
  });

  test.each<[number, number]>([
    [7_000, 10_000],
    [9_500, 11_500],
  ])("where events come, a first byte after %i ms has it end %i ms after the dispatch", (firstByteMs, endMs) => {
    const { knowledge, target, time, see } = knowledgeRig({ quality: "complete" });
    const placement = knowledge.place(target, prompt, 0);
    time.advance(firstByteMs);
    placement.computed();
    time.advance(endMs - firstByteMs - 1);
    expect(see(prompt).gpu).toBe(96);
    time.advance(1);
    expect(see(prompt).gpu).toBe(0);
  });

  test.each<FeedQuality>(["none", "partial"])("where the feed is %s, the first byte says nothing new", (quality) => {
    const { knowledge, target, time, see } = knowledgeRig({ quality });
    const placement = knowledge.place(target, prompt, 0);
    time.advance(ttlMs - 1);
    placement.computed();
    time.advance(1);
    expect(see(prompt).gpu).toBe(0);
  });

  test("a feed that becomes complete between dispatch and first byte does not shorten what was promised", () => {
    let quality: FeedQuality = "partial";
    const rig = knowledgeRig({ quality: () => quality });
    const placement = rig.knowledge.place(rig.target, prompt, 0);
    quality = "complete";
    rig.time.advance(5_000);
    placement.computed();
    expect(endsAfterMs(rig, prompt)).toBe(ttlMs - 5_000);
  });

  test("a feed that breaks in between leaves the guess the time that it had", () => {
    let quality: FeedQuality = "complete";
    const rig = knowledgeRig({ quality: () => quality });
    const placement = rig.knowledge.place(rig.target, prompt, 0);
    quality = "void";
    rig.time.advance(4_000);
    placement.computed();
    expect(endsAfterMs(rig, prompt)).toBe(6_000);
  });

  test("each use begins the time anew, to the depth of the use", () => {
    const { knowledge, target, time, see } = knowledgeRig();
    knowledge.place(target, prompt, 0);
    time.advance(ttlMs - 1_000);
    knowledge.place(target, promptOf(tokensOf("a", 40)), 32);
    time.advance(1_000);
    expect(see(prompt)).toMatchObject({ gpu: 32, ageMs: 1_000 });
    time.advance(ttlMs - 1_000);
    expect(see(prompt).gpu).toBe(0);
  });
});

// Behind a long queue guesses ran out before the events came; caches with the longest queues seemed the emptiest then, and
// drew every cold prompt.
test("a prompt that waits in a queue is believed in until it is computed", () => {
  const { knowledge, target, time, see } = knowledgeRig({ quality: "complete" });
  const placement = knowledge.place(target, prompt, 0);
  for (let second = 0; second < 60; second++) {
    time.advance(1_000);
    knowledge.renew();
  }
  expect(see(prompt).gpu).toBeGreaterThan(0);
  placement.computed();
  for (let second = 0; second < 11; second++) {
    time.advance(1_000);
    knowledge.renew();
  }
  expect(see(prompt).gpu).toBe(0);
});

describe("which placements the events may use to find a block's place", () => {
  test.each<{ name: string; of: PromptBlocks; quality: FeedQuality; reported: boolean }>([
    { name: "tokens at a target without events", of: prompt, quality: "none", reported: false },
    { name: "tokens at a target with some", of: prompt, quality: "partial", reported: true },
    { name: "tokens at a target whose events are void", of: prompt, quality: "void", reported: true },
    { name: "the beginning of a prompt", of: beginning, quality: "partial", reported: true },
    { name: "tokens at a target whose events tell all", of: prompt, quality: "complete", reported: false },
    { name: "bytes", of: inBytes, quality: "partial", reported: false },
    { name: "a prompt of no block", of: empty, quality: "partial", reported: false },
  ])("$name: $reported", ({ of, quality, reported }) => {
    const { knowledge, target, recent, placed } = knowledgeRig({ quality });
    knowledge.place(target, of, 0);
    expect(placed).toEqual(reported ? [target.index] : []);
    const tail = of.contents.subarray(2);
    expect(recent.find(tail, of.blockCount - 1)?.blocks).toBe(reported ? 1 : undefined);
  });
});

describe("a target that failed or refused", () => {
  test("a block of which a part was known goes", () => {
    const { knowledge, target, see } = knowledgeRig();
    knowledge.place(target, prompt, 95).withdraw();
    expect(see(prompt).gpu).toBe(80);
  });

  test("announced blocks are not a guess: they stay", () => {
    const { knowledge, target, see, announce } = knowledgeRig({ quality: "complete" });
    announce(prompt, 0, 4);
    const placement = knowledge.place(target, prompt, 64);
    expect(see(prompt).gpu).toBe(96);
    placement.withdraw();
    expect(see(prompt)).toMatchObject({ gpu: 64, ageMs: Number.NaN });
  });

  test("of a prompt without blocks there is nothing to take back", () => {
    const { knowledge, target, see } = knowledgeRig();
    knowledge.place(target, prompt, 0);
    knowledge.place(target, empty, 0).withdraw();
    expect(see(prompt).gpu).toBe(96);
  });
});

describe("what the engine says it had found in its cache", () => {
  test.each<{
    name: string;
    quality: FeedQuality;
    computed: boolean;
    cached: number | undefined;
    lasts: boolean;
  }>([
    { name: "confirms a guess", quality: "none", computed: true, cached: 0, lasts: true },
    {
      name: "confirms it where events do not tell all",
      quality: "partial",
      computed: true,
      cached: 96,
      lasts: true,
    },
    { name: "is not needed where they do", quality: "complete", computed: true, cached: 96, lasts: false },
    { name: "counts only once the prompt was computed", quality: "none", computed: false, cached: 96, lasts: false },
    {
      name: "confirms nothing when it is not said",
      quality: "none",
      computed: true,
      cached: undefined,
      lasts: false,
    },
  ])("$name", ({ quality, computed, cached, lasts }) => {
    const { knowledge, target, time, see } = knowledgeRig({ quality });
    const placement = knowledge.place(target, prompt, 0);
    if (computed) placement.computed();
    time.advance(5_000);
    placement.answered(cached);
    time.advance(ttlMs - 1);
    expect(see(prompt).gpu).toBe(lasts ? 96 : 0);
  });

  test.each<[string, PromptBlocks]>([
    ["bytes", inBytes],
    ["the beginning", beginning],
  ])("of a prompt of which the router has %s it confirms those blocks", (_, of) => {
    const { knowledge, target, time, see } = knowledgeRig();
    const placement = knowledge.place(target, of, 0);
    placement.computed();
    time.advance(ttlMs - 1);
    placement.answered(0);
    time.advance(ttlMs - 1);
    expect(see(of).gpu).toBe(96);
  });

  test.each<{ predicted: number; reported: number; over: number; under: number }>([
    { predicted: 64, reported: 64, over: 0, under: 0 },
    { predicted: 64, reported: 16, over: 48, under: 0 },
    { predicted: 0, reported: 80, over: 0, under: 80 },
  ])("$predicted tokens predicted and $reported reported are counted", ({ predicted, reported, over, under }) => {
    const { knowledge, target, meter } = knowledgeRig();
    knowledge.place(target, prompt, predicted).answered(reported);
    const counted = ["predicted", "reported", "over", "under"].map((kind) =>
      meter.value("espalier_cache_tokens_total", kind),
    );
    expect(counted).toEqual([predicted, reported, over, under]);
  });

  test("errors of two requests do not cancel out", () => {
    const { knowledge, target, meter } = knowledgeRig();
    knowledge.place(target, prompt, 64).answered(0);
    knowledge.place(target, empty, 0).answered(64);
    expect(meter.value("espalier_cache_tokens_total", "over")).toBe(64);
    expect(meter.value("espalier_cache_tokens_total", "under")).toBe(64);
  });
});

/** What targets hold, kept block by block under the letters that lead to it. */
class NaivePlacements {
  /** Until when. */
  readonly #blocks = new Map<string, number>();

  place(target: number, letters: string, nowMs: number): void {
    for (let depth = 1; depth <= letters.length; depth++) {
      const path = `${target} ${letters.slice(0, depth)}`;
      this.#blocks.set(path, nowMs + ttlMs);
    }
  }

  withdraw(target: number, letters: string, matched: number): void {
    if (matched >= letters.length) return;
    const path = `${target} ${letters.slice(0, matched + 1)}`;
    for (const known of [...this.#blocks.keys()]) if (known.startsWith(path)) this.#blocks.delete(known);
  }

  forget(target: number): void {
    for (const known of [...this.#blocks.keys()]) if (known.startsWith(`${target} `)) this.#blocks.delete(known);
  }

  depth(target: number, letters: string, nowMs: number): number {
    let depth = 0;
    while (depth < letters.length && this.#isHeld(`${target} ${letters.slice(0, depth + 1)}`, nowMs)) depth++;
    return depth;
  }

  #isHeld(path: string, nowMs: number): boolean {
    return (this.#blocks.get(path) ?? 0) > nowMs;
  }
}

/** One block for each letter, and a token more, so that every block counts. */
const ofLetters = (letters: string): PromptBlocks =>
  promptOf(joinTokens(...[...letters].map((letter) => tokensOf(letter, blockSize)), tokensOf("z", 1)));

test.each(fixedSeeds(6, 1))("guesses are those of a naive model, step by step (seed %i)", (seed) => {
  const random = createSeededRandom(seed);
  const { knowledge, time, see, index } = knowledgeRig();
  const naive = new NaivePlacements();
  const targets = [targetLike(0, {}), targetLike(1, {}), targetLike(2, {})];
  const randomLetters = (): string =>
    Array.from({ length: 1 + random.integer(6) }, () => "ab"[random.integer(2)]).join("");
  for (let step = 0; step < 300; step++) {
    const target = targets[random.integer(targets.length)]!;
    const letters = randomLetters();
    const nowMs = time.clock.nowMs();
    const action = random.integer(10);
    if (action === 0) {
      knowledge.forget(target.index);
      naive.forget(target.index);
    } else if (action <= 3) {
      time.advance(random.integer(ttlMs / 2));
    } else {
      const matched = see(ofLetters(letters), target).gpu;
      const placement = knowledge.place(target, ofLetters(letters), matched);
      naive.place(target.index, letters, nowMs);
      if (action <= 5) {
        placement.withdraw();
        naive.withdraw(target.index, letters, matched / blockSize);
      }
    }
    if (step % 7 === 0) index.maintain(time.clock.nowMs(), 20);
    const asked = randomLetters();
    for (const one of targets) {
      const wanted = naive.depth(one.index, asked, time.clock.nowMs()) * blockSize;
      expect(see(ofLetters(asked), one).gpu, `seed ${seed} step ${step}`).toBe(wanted);
    }
  }
});
