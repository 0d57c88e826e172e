import { DecayedSum } from "@espalier/common";
import type { AdmissionTarget } from "./admission-target.ts";

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
export interface OfferedWork {
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
