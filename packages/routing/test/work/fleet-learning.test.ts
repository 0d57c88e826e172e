import { asRouterId, createSeededRandom } from "@espalier/core";
import type { Note, NoteChannel } from "@espalier/shared-tree";
import { createSeriesMeter, createVirtualTime, type VirtualTime } from "@espalier/testing";
import { beforeEach, describe, expect, test } from "vitest";
import {
  createFleetLearning,
  type FleetLearning,
  firstPublishMs,
  maxUnusedPools,
  publishMs,
} from "../../src/work/fleet-learning.ts";
import { writeTimesNote } from "../../src/work/learned-note.ts";
import { type LearnedTimes, sumsOfFit } from "../../src/work/learned-times.ts";
import type { PoolWork } from "../../src/work/pool-work.ts";
import { anyPrompt, measured, targetOf, teach, usualEngine } from "./synthetic-engine.ts";

/** A channel that a test reads, and writes to for others. */
class ScriptedChannel implements NoteChannel {
  readonly posted: { readonly key: string; readonly bytes: Uint8Array }[] = [];
  isFull = false;
  refused = 0;
  readonly #listeners = new Set<(note: Note) => void>();

  post(key: string, bytes: Uint8Array): boolean {
    if (this.isFull) this.refused += 1;
    else this.posted.push({ key, bytes });
    return !this.isFull;
  }

  onNote(listener: (note: Note) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  hear(key: string, bytes: Uint8Array, router = "other", ageMs = 0): void {
    const origin = { router: asRouterId(router), epoch: 1 };
    for (const listener of this.#listeners) listener({ origin, key, bytes, ageMs });
  }
}

let time: VirtualTime;
let channel: ScriptedChannel;
let meter: ReturnType<typeof createSeriesMeter>;
let learning: FleetLearning;
const random = createSeededRandom(5);

beforeEach(async () => {
  time = createVirtualTime();
  time.advance(60_000);
  channel = new ScriptedChannel();
  meter = createSeriesMeter();
  learning = createFleetLearning({ channel, clock: time.clock, scheduler: time.scheduler, meter });
  await learning.start();
});

function timesOf(by = 1): LearnedTimes {
  const fit = { msPerKilotoken: 60 * by, msPerMegapair: by, fixedMs: 12 };
  const sums = sumsOfFit(fit, 100);
  return { fit, sums, msPerOutputToken: 20, answers: 40, ageMs: 0, targets: [], fetches: [] };
}

function learn(work: PoolWork, count: number, by = 1): void {
  for (let at = 0; at < count; at++) {
    const truth = { ...usualEngine, msPerToken: by * usualEngine.msPerToken };
    work.rates.observe(targetOf(0), measured(truth, anyPrompt(random), random));
    work.fleet.learned();
  }
}

const heardAs = (outcome: string) => meter.value("espalier_learned_times_received_total", outcome);

describe("what is told", () => {
  test("is nothing while nothing is learned", () => {
    learning.workOf("llama");
    time.advance(120_000);
    expect(channel.posted).toEqual([]);
  });

  test("is of each pool what it has learned, within two seconds", () => {
    learn(learning.workOf("llama"), 20);
    learn(learning.workOf("qwen"), 5);
    learning.workOf("idle");
    time.advance(publishMs);
    expect(channel.posted.map(({ key }) => key)).toEqual(["times/llama", "times/qwen"]);
    const { rates } = learning.workOf("llama");
    channel.hear("times/other", channel.posted[0]!.bytes);
    expect(learning.workOf("other").rates.msPerToken / rates.msPerToken).toBeCloseTo(1, 1);
  });

  test("is told four times a second until a router has seen 64 prompts, and not so often from then on", () => {
    const work = learning.workOf("llama");
    for (let at = 0; at < 64; at++) {
      learn(work, 1);
      time.advance(firstPublishMs);
    }
    expect(channel.posted).toHaveLength(64);
    for (let at = 0; at < 64; at++) {
      learn(work, 1);
      time.advance(firstPublishMs);
    }
    expect(channel.posted.length).toBeLessThanOrEqual(64 + (64 * firstPublishMs) / publishMs);
    expect(channel.posted.length).toBeGreaterThan(65);
    const before = channel.posted.length;
    time.advance(60_000);
    expect(channel.posted.length).toBeLessThanOrEqual(before + 1);
  });

  test("is told again when it has changed, or rests on much more, and not before", () => {
    const work = learning.workOf("llama");
    learn(work, 200);
    time.advance(publishMs);
    expect(channel.posted).toHaveLength(1);
    for (let at = 0; at < 20; at++) {
      learn(work, 1);
      time.advance(publishMs);
    }
    expect(channel.posted.length).toBeLessThanOrEqual(2);
    const before = channel.posted.length;
    learn(work, 100, 3);
    time.advance(publishMs);
    expect(channel.posted).toHaveLength(before + 1);
  });

  test("is told again each minute as long as something is being learned", () => {
    const work = learning.workOf("llama");
    teach(work.rates, 400, { random });
    work.fleet.learned();
    time.advance(publishMs);
    for (let second = 0; second < 180; second++) {
      if (second % 2 === 0) learn(work, 1);
      time.advance(1_000);
    }
    expect(channel.posted.length).toBeGreaterThanOrEqual(3);
    expect(channel.posted.length).toBeLessThanOrEqual(6);
    const count = channel.posted.length;
    time.advance(600_000);
    expect(channel.posted.length).toBeLessThanOrEqual(count + 1);
  });

  test("is told later when the channel is full", () => {
    learn(learning.workOf("llama"), 20);
    channel.isFull = true;
    time.advance(10 * publishMs);
    channel.isFull = false;
    time.advance(publishMs);
    expect(channel.posted).toHaveLength(1);
  });

  test("is not written again at every look while the channel is full", () => {
    channel.isFull = true;
    learn(learning.workOf("llama"), 200);
    time.advance(10 * publishMs);
    expect(channel.refused).toBeGreaterThan(1);
    expect(channel.refused).toBeLessThanOrEqual(11);
  });

  test("is nothing of a model whose name is too long, and nothing after the end", async () => {
    learn(learning.workOf("ü".repeat(101)), 20);
    learn(learning.workOf("ü".repeat(100)), 20);
    time.advance(publishMs);
    expect(channel.posted).toHaveLength(1);
    await learning.stop();
    learn(learning.workOf("llama"), 20);
    time.advance(60_000);
    expect(channel.posted).toHaveLength(1);
    expect(time.pendingCount).toBe(0);
  });
});

describe("what is heard", () => {
  test("is of the pool that it names, used here or not yet", () => {
    const used = learning.workOf("llama");
    channel.hear("times/llama", writeTimesNote(timesOf()));
    channel.hear("times/qwen", writeTimesNote(timesOf(3)));
    expect(used.rates.msPerToken / 0.06).toBeCloseTo(1, 1);
    expect(learning.workOf("qwen").rates.msPerToken / 0.18).toBeCloseTo(1, 1);
    expect(learning.workOf("unheard").rates.msPerToken).toBe(0.125);
    expect(heardAs("taken")).toBe(2);
  });

  test("is as old as it was when it was written, and has lain since", () => {
    const work = learning.workOf("llama");
    channel.hear("times/llama", writeTimesNote({ ...timesOf(), ageMs: 400_000 }), "other", 200_000);
    work.fleet.learned();
    expect(work.fleet.ageWeights.reported).toBeCloseTo(0.5, 9);
  });

  test("is left out and counted where it cannot be so, or cannot be read", () => {
    const work = learning.workOf("llama");
    channel.hear("times/llama", writeTimesNote(timesOf(2_000)));
    channel.hear(
      "times/llama",
      writeTimesNote({ ...timesOf(), fit: { msPerKilotoken: 0, msPerMegapair: 0, fixedMs: 5 } }),
    );
    channel.hear("times/llama", Uint8Array.of(9));
    expect(work.fleet.merged).toBeUndefined();
    expect([heardAs("implausible"), heardAs("invalid"), heardAs("taken")]).toEqual([2, 1, undefined]);
  });

  test("of something else is not of any pool", () => {
    const work = learning.workOf("llama");
    channel.hear("weather/llama", writeTimesNote(timesOf()));
    expect(work.fleet.merged).toBeUndefined();
    expect(heardAs("taken")).toBeUndefined();
  });

  test("of pools that are not used here is kept up to a bound; one past it has to be told again once it is used", () => {
    for (let at = 0; at < maxUnusedPools; at++) channel.hear(`times/m${at}`, writeTimesNote(timesOf()));
    channel.hear("times/one-more", writeTimesNote(timesOf()));
    expect(learning.workOf("one-more").fleet.merged).toBeUndefined();
    expect(learning.workOf(`m${maxUnusedPools - 1}`).fleet.merged).toBeDefined();
    channel.hear("times/one-more", writeTimesNote(timesOf()));
    expect(learning.workOf("one-more").fleet.merged).toBeDefined();
    // The one that is used now has made room.
    channel.hear("times/yet-another", writeTimesNote(timesOf()));
    expect(learning.workOf("yet-another").fleet.merged).toBeDefined();
  });
});

test("a router without others learns for itself", async () => {
  const alone = createFleetLearning({ channel: undefined, clock: time.clock, scheduler: time.scheduler, meter });
  await alone.start();
  learn(alone.workOf("llama"), 50);
  time.advance(60_000);
  expect(alone.workOf("llama").rates.msPerToken / usualEngine.msPerToken).toBeCloseTo(1, 1);
  await alone.stop();
});
