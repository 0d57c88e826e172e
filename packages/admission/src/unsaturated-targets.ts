import { DecayedSum } from "@espalier/common";
import type { AdmissionTarget, OthersLoad } from "./admission-request.ts";
import type { AdmissionSettings } from "./settings.ts";

/**
 * Prompt tokens that wait at the engines outside the lanes, at weight 1, from which on those who do not yield may use
 * lanes as well.
 */
const crowdedTokens = 8_192;

/** What a request wants of a target. */
export interface WantedRoom extends PendingBounds {
  /** It keeps to the lanes. */
  readonly yields: boolean;
  /** The only engine that will do. */
  readonly onlyEngine: string | undefined;
}

/** Finds the targets that a request of a class may go to now. */
export class OpenTargets<Target extends AdmissionTarget> {
  readonly #knee: Knee;
  readonly #lanes: Lanes;

  constructor(settings: AdmissionSettings, others: OthersLoad, lanes: Lanes) {
    this.#knee = { maxWaiting: settings.maxWaiting, maxKvUse: settings.maxKvUse, others };
    this.#lanes = lanes;
  }

  /**
   * A request waits while no engine has room for it. While one has, the choice is among all of them: who keeps a prompt from
   * the engine that has most of it cached makes another one compute it, and a fleet that was near its knee is past it.
   *
   * @returns the same array when all that are usable will do, or none is usable: then waiting would help nobody; with lanes
   *   those on its side of them that have room; undefined when the request has to wait
   */
  find(targets: readonly Target[], wanted: WantedRoom, nowMs: number): readonly Target[] | undefined {
    const { onlyEngine, yields } = wanted;
    const lanes = this.#lanes.among(targets, nowMs);
    let usable = 0;
    let open = 0;
    for (let place = 0; place < targets.length; place++) {
      const target = targets[place]!;
      if (!isCandidate(target, onlyEngine)) continue;
      usable += 1;
      if (this.#isOpen(target, wanted, lanes?.[place])) open += 1;
    }
    if (open === usable || (open > 0 && !lanes)) return targets;
    if (open > 0) {
      return targets.filter(
        (target, place) => isCandidate(target, onlyEngine) && this.#isOpen(target, wanted, lanes?.[place]),
      );
    }
    if (!lanes || yields) return undefined;
    // Nothing outside the lanes will do: better a lane than to wait.
    const anywhere = targets.filter((target) => {
      return isCandidate(target, onlyEngine) && hasRoom(target, wanted, this.#knee);
    });
    return anywhere.length > 0 ? anywhere : undefined;
  }

  /** @param lane 1 for a lane, 0 for another engine, undefined while there are no lanes */
  #isOpen(target: Target, wanted: WantedRoom, lane: number | undefined): boolean {
    if (!hasRoom(target, wanted, this.#knee)) return false;
    if (lane === undefined) return true;
    const { others } = this.#knee;
    if (wanted.yields) return lane === 1 || requestsAt(target, others) === 0;
    return lane === 0 && pendingTokens(target, others) < crowdedTokens;
  }
}

function isCandidate({ usable, engine }: AdmissionTarget, onlyEngine: string | undefined): boolean {
  return usable && engine.role !== "prefill" && (onlyEngine === undefined || engine.id === onlyEngine);
}

/** Metrics older than this say nothing about now. */
const freshSignalMs = 2_000;

/** From where on an engine gets no more. */
interface Knee {
  readonly maxWaiting: number;
  readonly maxKvUse: number;
  readonly others: OthersLoad;
}

/** Prompt tokens that wait at a target for all routers, per unit of weight. */
function pendingTokens(target: AdmissionTarget, others: OthersLoad): number {
  const { weight } = target.engine;
  const tokens = target.load.pendingPrefillTokens + at(others.pendingPrefillTokens, target.index);
  // An engine without a weight is asked only when no other one is there: then it counts as any other.
  return weight > 0 ? tokens / weight : tokens;
}

/** Milliseconds that a target is expected to compute on what all routers have sent, until the last first token. */
function pendingWorkMs(target: AdmissionTarget, others: OthersLoad): number {
  return target.load.pendingWorkMs + at(others.pendingWorkMs, target.index);
}

/** Requests in flight to a target from all routers. */
function requestsAt(target: AdmissionTarget, others: OthersLoad): number {
  return target.load.inFlight + at(others.inFlight, target.index);
}

/** Reading beyond the end of a typed array is slow, and this is done for every engine of every request. */
function at(column: Float64Array, index: number): number {
  return index < column.length ? column[index]! : 0;
}

/** How much may wait at an engine for one request more to go there. */
interface PendingBounds {
  /** Prompt tokens, for an engine of weight 1. */
  readonly maxPendingTokens: number;
  /** Of computing; Infinity where the request has no deadline. */
  readonly maxPendingMs: number;
}

/**
 * Whether a target is before its knee. Its own metrics count while they are fresh: requests that have ended since they
 * were read are taken off its queue, so that an old report does not keep an engine empty.
 */
function hasRoom(target: AdmissionTarget, bounds: PendingBounds, knee: Knee): boolean {
  if (pendingTokens(target, knee.others) >= bounds.maxPendingTokens) return false;
  const workMs = pendingWorkMs(target, knee.others);
  if (workMs > 0 && workMs >= bounds.maxPendingMs) return false;
  const { waiting, kvUse, inFlightAtScrape } = target.signals;
  if (!(waiting >= 1) || target.signals.ageMs() > freshSignalMs) return true;
  const change = requestsAt(target, knee.others) - inFlightAtScrape;
  const stillWaiting = change < 0 ? waiting + change : waiting;
  return stillWaiting < knee.maxWaiting && !(stillWaiting >= 1 && kvUse >= knee.maxKvUse);
}

/** Half of what was offered is forgotten in this time. */
const offeredHalfLifeMs = 30_000;
/**
 * What a token of an answer keeps an engine busy, in tokens of prefill: 0.4 ms, as its part of a step of 22 ms in which
 * 55 sequences get one each, on an engine that computes 12 tokens of a prompt in a millisecond.
 */
const outputTokenWork = 5;
/** Clients that set a bound on their answer hardly ever mean it. */
const mostOutputTokens = 512;
/** A kind of work of which less is left than this part of all is not there any more. */
const leastPart = 1e-4;
/** The number of lanes changes when the work asks for one that is so much further away than its rounding would be. */
const hysteresis = 0.75;

/** What one request asks of engines. */
interface OfferedWork {
  readonly uncachedTokens: number;
  readonly outputTokens: number;
}

/**
 * Keeps work that yields to some of a pool's engines while both kinds are there. A prompt of ten thousand tokens holds up
 * everybody at its engine for longer than a person wants to wait, in whatever order requests are sent: what helps is
 * that the person's requests go to engines without such prompts, where their own caches then stay as well.
 *
 * The lanes are as many as the yielding work's part of all work asks for, and are the first ones of an order that
 * all routers have in common, so that routers which see a little different work differ in one engine at most.
 */
export class Lanes {
  readonly #yielding = new DecayedSum(offeredHalfLifeMs);
  readonly #prompt = new DecayedSum(offeredHalfLifeMs);
  #count = 0;
  #targets: readonly AdmissionTarget[] = [];
  #order: Int32Array = new Int32Array();
  #isLane: Uint8Array = new Uint8Array();

  /** Work that came in. */
  offered(yields: boolean, work: OfferedWork, nowMs: number): void {
    const { uncachedTokens, outputTokens } = work;
    const tokens = uncachedTokens + outputTokenWork * Math.min(outputTokens, mostOutputTokens);
    (yields ? this.#yielding : this.#prompt).add(tokens, nowMs);
  }

  /**
   * Marks the lanes among targets by their place.
   *
   * @returns undefined while there are none: only one kind of work is there, or only one engine
   */
  among(targets: readonly AdmissionTarget[], nowMs: number): Uint8Array | undefined {
    const yielding = this.#yielding.at(nowMs);
    if (yielding < 1) return undefined;
    const prompt = this.#prompt.at(nowMs);
    const part = yielding / (yielding + prompt);
    if (part < leastPart || part > 1 - leastPart) return undefined;
    if (targets !== this.#targets) this.#take(targets);
    let usable = 0;
    for (const target of targets) if (target.usable) usable += 1;
    if (usable < 2) return undefined;
    this.#fill(Math.min(usable - 1, Math.max(1, this.#countFor(usable * part))));
    return this.#isLane;
  }

  #countFor(wanted: number): number {
    if (Math.abs(wanted - this.#count) > hysteresis) this.#count = Math.round(wanted);
    return this.#count;
  }

  #fill(count: number): void {
    this.#isLane.fill(0);
    let left = count;
    for (let at = 0; at < this.#order.length && left > 0; at++) {
      const place = this.#order[at]!;
      if (!this.#targets[place]!.usable) continue;
      this.#isLane[place] = 1;
      left -= 1;
    }
  }

  #take(targets: readonly AdmissionTarget[]): void {
    const ranks = targets.map(({ key }) => rankOf(key));
    const byRank = (a: number, b: number): number =>
      ranks[a]! - ranks[b]! || (targets[a]!.key < targets[b]!.key ? -1 : 1);
    this.#targets = targets;
    this.#order = Int32Array.from(targets.map((_, place) => place).sort(byRank));
    this.#isLane = new Uint8Array(targets.length);
  }
}

/** FNV-1a over UTF-16 code units, with a last mixing step: neighbours in name are none in order. */
function rankOf(key: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < key.length; at++) hash = Math.imul(hash ^ key.charCodeAt(at), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
  return (hash ^ (hash >>> 12)) >>> 0;
}
