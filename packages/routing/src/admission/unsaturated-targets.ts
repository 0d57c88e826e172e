import { DecayedSum, fnv1a } from "@espalier/core";
import type { AdmissionExclusion, AdmissionTarget, PeerLoad } from "./admission-request.ts";
import type { AdmissionSettings } from "./settings.ts";

/**
 * Pending prompt tokens at engines outside the partition, at weight 1, from which on requests that do not yield may use the
 * partition as well.
 */
const spillTokens = 8_192;
/**
 * Requests that do not yield may use the partition as well when every engine outside has three times the requests in flight
 * that engines inside have on average, and 16 more: what `predicted_latency` lets an engine have over the mean of all.
 */
const spillRatio = 3;
const spillRequests = 16;

export const noneExcluded: ReadonlyMap<string, AdmissionExclusion> = new Map();

/** What a request requires of a target. */
export interface TargetDemand extends PendingBounds {
  /** It is confined to the partition. */
  readonly yields: boolean;
  /** The only engine that can serve it. */
  readonly onlyEngine: string | undefined;
  /** While no engine is usable, it waits until one is. */
  readonly waitsForEngine: boolean;
}

/** Finds the targets that a request may go to now. */
export class UnsaturatedTargets<Target extends AdmissionTarget> {
  readonly #limits: SaturationLimits;
  readonly #partition: ClassPartition;

  constructor(settings: AdmissionSettings, others: PeerLoad, partition: ClassPartition) {
    this.#limits = { maxWaiting: settings.maxWaiting, maxKvUse: settings.maxKvUse, others };
    this.#partition = partition;
  }

  /**
   * A request waits while every engine is saturated for it. While one is not, the policy chooses among all of them.
   * Excluding the engine that has most of the prompt cached would make another engine compute it, which saturates a
   * busy fleet.
   *
   * @returns the same array when any engine is unsaturated, or none is usable and the request waits for none; while the
   * engines are partitioned, the unsaturated ones on the request's side; undefined when the request has to wait
   */
  find(targets: readonly Target[], wanted: TargetDemand, nowMs: number): readonly Target[] | undefined {
    const { onlyEngine, yields } = wanted;
    const partition = this.#partition.among(targets, yields, nowMs);
    let usable = 0;
    let accepting = 0;
    for (let place = 0; place < targets.length; place++) {
      const target = targets[place]!;
      if (!isCandidate(target, onlyEngine)) continue;
      usable += 1;
      if (this.#accepts(target, wanted, partition?.[place])) accepting += 1;
    }
    if (usable === 0) return wanted.waitsForEngine ? undefined : targets;
    if (accepting === usable || (accepting > 0 && !partition)) return targets;
    if (accepting > 0) {
      return targets.filter(
        (target, place) => isCandidate(target, onlyEngine) && this.#accepts(target, wanted, partition?.[place]),
      );
    }
    if (!partition || yields) return undefined;
    // All engines outside the partition are saturated: one inside is better than waiting.
    const anywhere = targets.filter((target) => {
      return isCandidate(target, onlyEngine) && isUnsaturated(target, wanted, this.#limits);
    });
    return anywhere.length > 0 ? anywhere : undefined;
  }

  /** Why `find` left out usable targets, by key. @param found its answer */
  excluded(
    targets: readonly Target[],
    found: readonly Target[],
    wanted: TargetDemand,
  ): ReadonlyMap<string, AdmissionExclusion> {
    if (found === targets) return noneExcluded;
    const isFound = new Set(found);
    const excluded = new Map<string, AdmissionExclusion>();
    for (const target of targets) {
      if (isFound.has(target) || !isCandidate(target, wanted.onlyEngine)) continue;
      excluded.set(target.key, isUnsaturated(target, wanted, this.#limits) ? "class_partition" : "saturated");
    }
    return excluded;
  }

  /** @param isMember 1 inside the partition, 0 outside, undefined while there is none */
  #accepts(target: Target, wanted: TargetDemand, isMember: number | undefined): boolean {
    if (!isUnsaturated(target, wanted, this.#limits)) return false;
    if (isMember === undefined) return true;
    const { others } = this.#limits;
    if (wanted.yields) return isMember === 1 || requestsAt(target, others) === 0;
    return isMember === 0 && pendingTokens(target, others) < spillTokens;
  }
}

/** Whether any target could take a whole request now. */
export function hasCandidate(targets: readonly AdmissionTarget[]): boolean {
  return targets.some((target) => isCandidate(target, undefined));
}

function isCandidate({ usable, engine }: AdmissionTarget, onlyEngine: string | undefined): boolean {
  return usable && engine.role !== "prefill" && (onlyEngine === undefined || engine.id === onlyEngine);
}

/** Older metrics are ignored. */
const freshSignalMs = 2_000;

/** The limits from which an engine counts as saturated. */
interface SaturationLimits {
  readonly maxWaiting: number;
  readonly maxKvUse: number;
  readonly others: PeerLoad;
}

/** Pending prompt tokens at a target from all routers, per unit of weight. */
function pendingTokens(target: AdmissionTarget, others: PeerLoad): number {
  return (target.load.pendingPrefillTokens + at(others.pendingPrefillTokens, target.index)) / countingWeight(target);
}

/** An engine of weight 0 is used only when there is no other: then it counts like any other. */
function countingWeight({ engine }: AdmissionTarget): number {
  return engine.weight > 0 ? engine.weight : 1;
}

/** Expected milliseconds of pending prefill work at a target from all routers. */
function pendingWorkMs(target: AdmissionTarget, others: PeerLoad): number {
  return target.load.pendingWorkMs + at(others.pendingWorkMs, target.index);
}

/** Requests in flight to a target from all routers. */
function requestsAt(target: AdmissionTarget, others: PeerLoad): number {
  return target.load.inFlight + at(others.inFlight, target.index);
}

/** Those of classes that yield. */
function yieldingAt(target: AdmissionTarget, others: PeerLoad): number {
  return target.load.yieldingInFlight + at(others.yieldingInFlight, target.index);
}

/** Reading beyond the end of a typed array is slow, and this is done for every engine of every request. */
function at(column: Float64Array, index: number): number {
  return index < column.length ? column[index]! : 0;
}

/** Most pending work at an engine for one more request to go there. */
interface PendingBounds {
  /** Prompt tokens, for an engine of weight 1. */
  readonly maxPendingTokens: number;
  /** Milliseconds of work; Infinity where the request has no deadline. */
  readonly maxPendingMs: number;
}

/**
 * Whether a target is below its saturation limits. Its own metrics count while they are fresh; requests that have ended since
 * the scrape are subtracted from its queue, so that an old report does not keep an engine idle.
 */
function isUnsaturated(target: AdmissionTarget, bounds: PendingBounds, limits: SaturationLimits): boolean {
  if (pendingTokens(target, limits.others) >= bounds.maxPendingTokens) return false;
  const workMs = pendingWorkMs(target, limits.others);
  if (workMs > 0 && workMs >= bounds.maxPendingMs) return false;
  const { waiting, kvUse, inFlightAtScrape } = target.signals;
  if (!(waiting >= 1) || target.signals.ageMs() > freshSignalMs) return true;
  const change = requestsAt(target, limits.others) - inFlightAtScrape;
  const stillWaiting = change < 0 ? waiting + change : waiting;
  return stillWaiting < limits.maxWaiting && !(stillWaiting >= 1 && kvUse >= limits.maxKvUse);
}

/** Part of a partition that its work asks for, from which on no other work enters it for its requests in flight. */
const fullPart = 0.75;

/** Half-life of the measured work. */
const offeredHalfLifeMs = 30_000;
/**
 * Work of an output token, in prefill tokens: 0.4 ms, its share of a 22 ms step that yields one token for each of 55
 * sequences, on an engine that prefills 12 tokens in a millisecond.
 */
const outputTokenWork = 5;
/** Most output tokens that are assumed: clients' own bounds are rarely reached. */
const mostOutputTokens = 512;
/** A kind of work below this share of all work counts as absent. */
const leastPart = 1e-4;
/** Work that does not yield keeps its engines for this long after its last request arrived. */
const quietMs = 30_000;
/** The partition is resized when its wanted size differs from its size by more than this. */
const hysteresis = 0.75;

/** Work of one request. */
interface OfferedWork {
  readonly uncachedTokens: number;
  readonly outputTokens: number;
}

/**
 * Confines work of yielding classes to a partition of a pool's engines while other classes have work too. A prompt of
 * ten thousand tokens delays everything at its engine for longer than a person accepts, regardless of the order of
 * requests. Interactive requests therefore go to engines without such prompts, where their caches stay as well.
 *
 * The partition is there while yielding work is in flight or queued at any router, and ends with it. The engines of other
 * work are kept for half a minute after its last request, since a person takes time to answer.
 *
 * The size of the partition follows the share of yielding work. Its members are the first engines of an order that all
 * routers compute identically, so routers that see slightly different work differ in one engine at most.
 */
export class ClassPartition {
  readonly #others: PeerLoad;
  readonly #isYieldingQueued: () => boolean;
  readonly #yielding = new DecayedSum(offeredHalfLifeMs);
  readonly #prompt = new DecayedSum(offeredHalfLifeMs);
  #promptMs = Number.NEGATIVE_INFINITY;
  #count = 0;
  #targets: readonly AdmissionTarget[] = [];
  #order: Int32Array = new Int32Array();
  #isMember: Uint8Array = new Uint8Array();

  /** @param isYieldingQueued whether a request of a class that yields is queued at any router */
  constructor(others: PeerLoad, isYieldingQueued: () => boolean) {
    this.#others = others;
    this.#isYieldingQueued = isYieldingQueued;
  }

  /** Records the work of a request that arrived. */
  offered(yields: boolean, work: OfferedWork, nowMs: number): void {
    const { uncachedTokens, outputTokens } = work;
    const tokens = uncachedTokens + outputTokenWork * Math.min(outputTokens, mostOutputTokens);
    (yields ? this.#yielding : this.#prompt).add(tokens, nowMs);
    if (!yields) this.#promptMs = nowMs;
  }

  /**
   * @param yields whether the request for which it is asked yields: it counts as work of its kind
   * @returns by place in `targets`, 1 for members of the partition; undefined while there is none for the request: there is
   *   only one kind of work, or only one usable engine, or the engines outside are busy and those inside are not
   */
  among(targets: readonly AdmissionTarget[], yields: boolean, nowMs: number): Uint8Array | undefined {
    const yielding = this.#yielding.at(nowMs);
    if (yielding < 1) return undefined;
    const part = yielding / (yielding + this.#prompt.at(nowMs));
    if (part < leastPart || part > 1 - leastPart) return undefined;
    let usable = 0;
    let requests = 0;
    let yieldingRequests = 0;
    for (const target of targets) {
      requests += requestsAt(target, this.#others);
      yieldingRequests += yieldingAt(target, this.#others);
      if (isCandidate(target, undefined)) usable += 1;
    }
    if (usable < 2) return undefined;
    if (!yields && yieldingRequests === 0 && !this.#isYieldingQueued()) return undefined;
    if (yields && requests === yieldingRequests && nowMs - this.#promptMs > quietMs) return undefined;
    if (targets !== this.#targets) this.#take(targets);
    const count = Math.min(usable - 1, Math.max(1, this.#countFor(usable * part)));
    this.#fill(count);
    const isLarge = usable * part < fullPart * count;
    return !yields && isLarge && this.#isHotOutside() ? undefined : this.#isMember;
  }

  /** Whether every engine outside has far more requests in flight than those inside have on average. */
  #isHotOutside(): boolean {
    let least = Number.POSITIVE_INFINITY;
    let inside = 0;
    let insideWeight = 0;
    for (let place = 0; place < this.#targets.length; place++) {
      const target = this.#targets[place]!;
      if (!isCandidate(target, undefined)) continue;
      const requests = requestsAt(target, this.#others);
      const weight = countingWeight(target);
      if (this.#isMember[place] === 1) {
        inside += requests;
        insideWeight += weight;
      } else least = Math.min(least, requests / weight);
    }
    return least >= (spillRatio * inside) / insideWeight + spillRequests;
  }

  #countFor(wanted: number): number {
    if (Math.abs(wanted - this.#count) > hysteresis) this.#count = Math.round(wanted);
    return this.#count;
  }

  #fill(count: number): void {
    this.#isMember.fill(0);
    let left = count;
    for (let at = 0; at < this.#order.length && left > 0; at++) {
      const place = this.#order[at]!;
      if (!isCandidate(this.#targets[place]!, undefined)) continue;
      this.#isMember[place] = 1;
      left -= 1;
    }
  }

  #take(targets: readonly AdmissionTarget[]): void {
    const ranks = targets.map(({ key }) => rankOf(key));
    const byRank = (a: number, b: number): number =>
      ranks[a]! - ranks[b]! || (targets[a]!.key < targets[b]!.key ? -1 : 1);
    this.#targets = targets;
    this.#order = Int32Array.from(targets.map((_, place) => place).sort(byRank));
    this.#isMember = new Uint8Array(targets.length);
  }
}

/** FNV-1a over UTF-16 code units with a final mixing step, so that similar keys get unrelated ranks. */
function rankOf(key: string): number {
  let hash = fnv1a(key);
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
  return (hash ^ (hash >>> 12)) >>> 0;
}
