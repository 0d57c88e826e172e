import type { Cancel, Clock, Meter, Scheduler, Startable } from "@espalier/core";
import type { Note, NoteChannel } from "@espalier/shared-tree";
import { readTimesNote, writeTimesNote } from "./learned-note.ts";
import { coldPromptMs, type LearnedTimes } from "./learned-times.ts";
import { PoolWork } from "./pool-work.ts";

interface FleetLearningOptions {
  /** The channel for notes; undefined where nothing is shared. */
  readonly channel: NoteChannel | undefined;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly meter: Meter;
}

/** Learned times of engines, shared among routers. */
export interface FleetLearning extends Startable {
  /** The work of a model's engines, created on first use. An adapter's engines are those of its base model. */
  workOf(model: string): PoolWork;
  /** The pools that this router serves, by model. */
  used(): Iterable<readonly [model: string, work: PoolWork]>;
}

/** Shortest time between two notes on a pool, and between two attempts while there is no place for it. */
export const publishMs = 2_000;
/** The same while few samples are known. */
export const firstPublishMs = 250;
/** Until a router has this many prompts: a cold fleet learns most in its first seconds. */
const firstSamples = 64;
/** Growth of samples, as a share, after which an unchanged fit is published again. */
const publishGrowth = 0.25;
/** Change of a fit, as a share, after which it is published again. */
const publishShare = 0.05;
/** The same for fetches: this many milliseconds more for a thousand tokens. */
const leastReportedChange = 0.5;
/** The same for a target's logarithm, weighted by how well it is known. */
const publishLog = 0.1;
/** While samples arrive, unchanged fits are published at this interval, so that they do not look old. */
const republishMs = 60_000;
/** Bound of pools that only other routers serve. */
export const maxUnusedPools = 256;
/** A note's key: this, and the model's name. */
const keyPrefix = "times/";
/** Longest model name in UTF-8 bytes; pools with longer names are not shared. */
const maxModelBytes = 200;

const encoder = new TextEncoder();

/** Publishes and receives nothing before `start`, and nothing without a note channel. */
export function createFleetLearning(options: FleetLearningOptions): FleetLearning {
  const { channel, clock, scheduler, meter } = options;
  const meters = createLearnedMeters(meter);
  const pools = new Map<string, SharedPool>();
  let unused = 0;
  const receive = (note: Note): void => {
    if (!note.key.startsWith(keyPrefix)) return;
    const model = note.key.slice(keyPrefix.length);
    let pool = pools.get(model);
    if (!pool) {
      if (unused >= maxUnusedPools) return;
      unused += 1;
      pool = new SharedPool(clock);
      pools.set(model, pool);
    }
    meters.received(take(note, pool.work));
  };
  let cancels: readonly Cancel[] = [];
  return {
    workOf(model) {
      let pool = pools.get(model);
      if (!pool) {
        pool = new SharedPool(clock);
        pools.set(model, pool);
      } else if (!pool.isUsed) unused -= 1;
      pool.isUsed = true;
      return pool.work;
    },
    *used() {
      for (const [model, { isUsed, work }] of pools) if (isUsed) yield [model, work];
    },
    async start() {
      if (!channel) return;
      cancels = [
        channel.onNote(receive),
        scheduler.every(firstPublishMs, () => {
          for (const [model, pool] of pools) {
            if (encoder.encode(model).length <= maxModelBytes) pool.publish(channel, keyPrefix + model);
          }
        }),
      ];
    },
    async stop() {
      for (const cancel of cancels) cancel();
    },
  };
}

function take(note: Note, work: PoolWork): Outcome {
  try {
    const times = readTimesNote(note.bytes);
    const isTaken = work.fleet.receive(note.origin.router, olderBy(times, note.ageMs));
    return isTaken ? "taken" : "implausible";
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return "invalid";
  }
}

function olderBy(times: LearnedTimes, ageMs: number): LearnedTimes {
  const fetches = times.fetches.map((fetch) => ({ ...fetch, ageMs: fetch.ageMs + ageMs }));
  return { ...times, ageMs: times.ageMs + ageMs, fetches };
}

/** One pool, and what was published about it. */
class SharedPool {
  readonly work: PoolWork;
  /** Whether this router serves the pool; others are known only from notes. */
  isUsed = false;
  readonly #clock: Clock;
  /** When there was no place for it last. */
  #refusedMs = Number.NEGATIVE_INFINITY;
  #published: LearnedTimes | undefined;
  #publishedMs = Number.NEGATIVE_INFINITY;
  #publishedCount = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.work = new PoolWork(clock);
  }

  publish(channel: NoteChannel, key: string): void {
    const { samples } = this.work;
    const isFirst = samples <= firstSamples;
    const nowMs = this.#clock.nowMs();
    const agoMs = nowMs - this.#publishedMs;
    if (samples === this.#publishedCount || (!isFirst && agoMs < publishMs)) return;
    if (nowMs - this.#refusedMs < publishMs) return;
    const { learned } = this.work;
    if (this.#published && !isFirst && agoMs < republishMs && !differ(learned, this.#published)) return;
    if (!channel.post(key, writeTimesNote(learned))) {
      this.#refusedMs = nowMs;
      return;
    }
    this.#published = learned;
    this.#publishedMs = nowMs;
    this.#publishedCount = samples;
  }
}

function differ(now: LearnedTimes, published: LearnedTimes): boolean {
  const isFar = (one: number, other: number): boolean => Math.abs(one - other) > publishShare * other;
  const hasGrown = (weight: number, before: number): boolean => weight > (1 + publishGrowth) * before;
  if (hasGrown(now.sums.weight, published.sums.weight) || isFar(now.msPerOutputToken, published.msPerOutputToken))
    return true;
  for (const kilotokens of [0.5, 8]) {
    if (isFar(coldPromptMs(now.fit, kilotokens), coldPromptMs(published.fit, kilotokens))) return true;
  }
  for (const { tier, msPerKilotoken, sums } of now.fetches) {
    const before = published.fetches.find((fetch) => fetch.tier === tier);
    if (!before || hasGrown(sums.weight, before.sums.weight)) return true;
    if (Math.abs(msPerKilotoken - before.msPerKilotoken) > publishShare * before.msPerKilotoken + leastReportedChange)
      return true;
  }
  const before = new Map(published.targets.map((target) => [target.key, target]));
  return now.targets.some(({ key, log, known }) => {
    const { log: logBefore = 0, known: knownBefore = 0 } = before.get(key) ?? {};
    return Math.abs(log - logBefore) > publishLog * known || hasGrown(known, 2 * knownBefore);
  });
}

/** `implausible`: readable, but impossible. */
type Outcome = "taken" | "implausible" | "invalid";

/** Metrics of the notes on learned times. */
interface LearnedMeters {
  received(outcome: Outcome): void;
}

/** Registers the metrics. */
function createLearnedMeters(meter: Meter): LearnedMeters {
  const received = meter.counter(
    "espalier_learned_times_received_total",
    "Learned engine times received from other routers, by outcome.",
    ["outcome"],
  );
  const outcomes = {
    taken: received.series("taken"),
    implausible: received.series("implausible"),
    invalid: received.series("invalid"),
  };
  return { received: (outcome) => outcomes[outcome].add() };
}
