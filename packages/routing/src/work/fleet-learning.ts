import type { Cancel, Clock, Meter, Scheduler, Startable } from "@espalier/common";
import type { Note, NoteChannel } from "@espalier/replication";
import { readTimesNote, writeTimesNote } from "./learned-note.ts";
import { coldPromptMs, type LearnedTimes } from "./learned-times.ts";
import { PoolWork } from "./pool-work.ts";

interface FleetLearningOptions {
  /** Where routers tell each other; undefined where they do not. */
  readonly board: NoteChannel | undefined;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly meter: Meter;
}

/** What routers learn of the times that engines take, shared among them. */
export interface FleetLearning extends Startable {
  /** Of the pool of a model, made on first use. */
  workOf(model: string): PoolWork;
}

/** How often others are told of a pool at most. */
export const publishMs = 2_000;
/** The same while little is known of it. */
export const firstPublishMs = 250;
/** Until a router has seen so many prompts: a cold fleet learns in its first seconds what it goes by from then on. */
const firstSamples = 64;
/** Samples grow by so much, as a share, before others are told of them though they say the same. */
const publishGrowth = 0.25;
/** What others are told changes by so much, as a share, before they are told again. */
const publishShare = 0.05;
/** What fetching a thousand tokens takes, by so much besides, in milliseconds. */
const leastReportedChange = 0.5;
/** A target's logarithm by so much, as far as it is known. */
const publishLog = 0.1;
/** What does not change is told again so often as long as it is being learned, so that it does not seem old. */
const republishMs = 60_000;
/** Of how many pools others may tell that this router has not used. */
export const maxUnusedPools = 256;
/** What a note is about: this, and the model's name. */
const keyPrefix = "times/";
/** UTF-8 bytes of a model's name that others are told of: a longer one's pool every router learns for itself. */
const maxModelBytes = 200;

const encoder = new TextEncoder();

/** Tells and hears nothing before `start`, and nothing where there is no board. */
export function createFleetLearning(options: FleetLearningOptions): FleetLearning {
  const { board, clock, scheduler, meter } = options;
  const meters = createLearnedMeters(meter);
  const pools = new Map<string, SharedPool>();
  let unused = 0;
  const hear = (note: Note): void => {
    if (!note.key.startsWith(keyPrefix)) return;
    const model = note.key.slice(keyPrefix.length);
    let pool = pools.get(model);
    if (!pool) {
      if (unused >= maxUnusedPools) return;
      unused += 1;
      pool = new SharedPool(clock);
      pools.set(model, pool);
    }
    meters.heard(take(note, pool.work));
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
    async start() {
      if (!board) return;
      cancels = [
        board.onNote(hear),
        scheduler.every(firstPublishMs, () => {
          for (const [model, pool] of pools) {
            if (encoder.encode(model).length <= maxModelBytes) pool.tell(board, keyPrefix + model);
          }
        }),
      ];
    },
    async stop() {
      for (const cancel of cancels) cancel();
    },
  };
}

function take(note: Note, work: PoolWork): Parameters<LearnedMeters["heard"]>[0] {
  try {
    const times = readTimesNote(note.bytes);
    const isTaken = work.fleet.tell(note.origin.router, olderBy(times, note.ageMs));
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

/** One pool, and what others were told of it. */
class SharedPool {
  readonly work: PoolWork;
  /** This router chooses among its engines; of others it has only heard. */
  isUsed = false;
  readonly #clock: Clock;
  #told: LearnedTimes | undefined;
  #toldMs = Number.NEGATIVE_INFINITY;
  #toldCount = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.work = new PoolWork(clock);
  }

  tell(board: NoteChannel, key: string): void {
    const { samples } = this.work;
    const isFirst = samples <= firstSamples;
    const agoMs = this.#clock.nowMs() - this.#toldMs;
    if (samples === this.#toldCount || (!isFirst && agoMs < publishMs)) return;
    const { learned } = this.work;
    if (this.#told && !isFirst && agoMs < republishMs && !differ(learned, this.#told)) return;
    if (!board.post(key, writeTimesNote(learned))) return;
    this.#told = learned;
    this.#toldMs = this.#clock.nowMs();
    this.#toldCount = samples;
  }
}

function differ(now: LearnedTimes, told: LearnedTimes): boolean {
  const isFar = (one: number, other: number): boolean => Math.abs(one - other) > publishShare * other;
  const hasGrown = (weight: number, before: number): boolean => weight > (1 + publishGrowth) * before;
  if (hasGrown(now.sums.weight, told.sums.weight) || isFar(now.msPerOutputToken, told.msPerOutputToken)) return true;
  for (const kilotokens of [0.5, 8]) {
    if (isFar(coldPromptMs(now.fit, kilotokens), coldPromptMs(told.fit, kilotokens))) return true;
  }
  for (const { tier, msPerKilotoken, sums } of now.fetches) {
    const before = told.fetches.find((fetch) => fetch.tier === tier);
    if (!before || hasGrown(sums.weight, before.sums.weight)) return true;
    if (Math.abs(msPerKilotoken - before.msPerKilotoken) > publishShare * before.msPerKilotoken + leastReportedChange)
      return true;
  }
  const before = new Map(told.targets.map((target) => [target.key, target]));
  return now.targets.some(({ key, log, known }) => {
    const { log: logBefore = 0, known: knownBefore = 0 } = before.get(key) ?? {};
    return Math.abs(log - logBefore) > publishLog * known || hasGrown(known, 2 * knownBefore);
  });
}

/** `implausible`: it can be read, and cannot be so. */
type LearnedAs = "taken" | "implausible" | "invalid";

/** The metrics of what routers tell each other of the times that engines take. */
interface LearnedMeters {
  heard(as: LearnedAs): void;
}

/** Registers these metrics. */
function createLearnedMeters(meter: Meter): LearnedMeters {
  const heard = meter.counter({
    name: "espalier_learned_times_received_total",
    help: "What other routers told of the times that engines take, by whether it could be used.",
    labels: ["outcome"],
  });
  const outcomes = {
    taken: heard.series("taken"),
    implausible: heard.series("implausible"),
    invalid: heard.series("invalid"),
  };
  return { heard: (as) => outcomes[as].add() };
}
