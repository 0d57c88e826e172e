import type { EngineParameters } from "@espalier/engine-model";
import { hashString } from "@espalier/policies";
import { blockTokens, type SimRequest } from "../clients/workload.ts";
import type { FrontOutcome } from "../fleet/front.ts";
import type { SimEngine } from "../fleet/sim-engine.ts";
import type { CreateRival, Rival, RivalParts } from "./rival.ts";
import { nameOf } from "./seats.ts";

/**
 * DualMap (arXiv 2602.06502 v1, ICLR 2026): two hash functions of a prompt's beginning name two engines (section 3.2). The one
 * that has more of the prompt takes it while its first token would keep the objective, else the one with less to compute.
 * Where neither would, requests that wait move to their other engine (3.3, A.1). Its authors run one scheduler. With several
 * each knows what it sent itself, and all agree on the two engines. The ring that keeps hashes stable while engines come
 * and go (3.4) makes no difference in a fleet that stays as it is.
 */
const published = {
  /** The objective of their experiments for the first token. */
  objectiveMs: 5_000,
  /** Hashes cover whole blocks of so many tokens. */
  keyTokens: 512,
  /** Shares of requests, times the number of engines, at which a beginning gets a longer hash, and a shorter one again. */
  hot: 2,
  cool: 1,
  /** An engine that has computed no prompt for so long is short of memory, and counts as late by that time. */
  stallMs: 3_000,
} as const;

/** Not published: the latest requests whose beginnings are counted, and how many make a share. */
const windowRequests = 1_000;
const leastRequests = 100;
/**
 * Not published: how an engine's speed is profiled. It begins as that of an idle engine with a prompt near the mean length of
 * their traces, and follows what the latest prompts took beside answers under way, which slow an engine to half.
 */
const profileTokens = 8_192;
const profiledTokens = 40 * profileTokens;

const seeds = [0x9e37_79b1, 0x85eb_ca6b] as const;

/** A request that has no first token yet. */
interface Queued {
  readonly request: SimRequest;
  /** Its other candidate. */
  readonly other: Instance;
  /** Prompt tokens that its engine was expected to compute. */
  uncached: number;
  hasBegun: boolean;
  readonly ended: (outcome: FrontOutcome) => void;
}

/** An engine as one scheduler sees it. */
class Instance {
  readonly engine: SimEngine;
  readonly region: number;
  /** Milliseconds that the latest prompts took, and their tokens. */
  #profileMs: number;
  #profileTokens = profiledTokens;
  readonly queue: Queued[] = [];
  /** Blocks of the prompts sent there, the least recently used first. */
  readonly #blocks = new Map<number, undefined>();
  /** Prompt tokens of its queue. */
  pendingTokens = 0;
  /** When it last ended a prompt, or its queue began. */
  aliveMs = 0;

  constructor(engine: SimEngine, region: number, parameters: EngineParameters) {
    this.engine = engine;
    this.region = region;
    const { prefillMsPerToken, attentionMsPerTokenPair, stepBaseMs, maxBatchedTokens } = parameters;
    const idleMs = prefillMsPerToken + (attentionMsPerTokenPair * profileTokens) / 2 + stepBaseMs / maxBatchedTokens;
    this.#profileMs = idleMs * profiledTokens;
  }

  get msPerToken(): number {
    return this.#profileMs / this.#profileTokens;
  }

  /** A prompt has its first token. */
  profile(tokens: number, elapsedMs: number): void {
    const kept = profiledTokens / (profiledTokens + tokens);
    this.#profileMs = (this.#profileMs + elapsedMs) * kept;
    this.#profileTokens = (this.#profileTokens + tokens) * kept;
  }

  matchedTokens({ chain, promptTokens }: SimRequest): number {
    const blocks = Math.floor(promptTokens / blockTokens);
    let block = 0;
    while (block < blocks && this.#blocks.has(nameOf(chain, block))) block++;
    return block * blockTokens;
  }

  save({ chain, promptTokens }: SimRequest): void {
    // The end of a prompt goes first, as in the engine.
    for (let block = Math.floor(promptTokens / blockTokens) - 1; block >= 0; block--) {
      const name = nameOf(chain, block);
      this.#blocks.delete(name);
      this.#blocks.set(name, undefined);
    }
    const most = Math.floor(this.engine.kvTokens / blockTokens);
    for (const name of this.#blocks.keys()) {
      if (this.#blocks.size <= most) break;
      this.#blocks.delete(name);
    }
  }

  /** Milliseconds until a request with so much to compute has its first token, behind so many pending tokens. */
  ttftMs(uncached: number, nowMs: number, ahead = this.pendingTokens): number {
    const stalledMs = this.queue.length === 0 ? 0 : nowMs - this.aliveMs;
    return (ahead + uncached) * this.msPerToken + (stalledMs > published.stallMs ? stalledMs : 0);
  }

  /** Requests that its engine has not begun, if all that wait there are of this scheduler. */
  waiting(): readonly Queued[] {
    const { waiting } = this.engine.stats();
    return waiting === 0 ? [] : this.queue.slice(-waiting).filter(({ hasBegun }) => !hasBegun);
  }
}

/** The beginnings of prompts that many share. Their hashes cover more blocks. */
export class HotPrefixes {
  readonly #engines: number;
  readonly #window: (readonly number[])[] = [];
  readonly #counts = new Map<number, number>();
  /** Beginnings whose continuations are told apart. */
  readonly #split = new Set<number>();

  constructor(engines: number) {
    this.#engines = engines;
  }

  /** Counts a request. @returns the name of the beginning that it is hashed by */
  add({ chain, promptTokens, index }: SimRequest): number {
    const keyBlocks = published.keyTokens / blockTokens;
    const blocks = Math.floor(promptTokens / blockTokens);
    if (blocks < keyBlocks) return blocks === 0 ? index : nameOf(chain, blocks - 1);
    const path: number[] = [];
    for (let end = keyBlocks; end <= blocks; end += keyBlocks) {
      const name = nameOf(chain, end - 1);
      path.push(name);
      if (!this.#split.has(name)) break;
    }
    this.#count(path, 1);
    this.#window.push(path);
    if (this.#window.length > windowRequests) this.#count(this.#window.shift()!, -1);
    if (this.#window.length >= leastRequests) for (const name of path) this.#judge(name);
    return path.at(-1)!;
  }

  #count(path: readonly number[], change: number): void {
    for (const name of path) {
      const count = (this.#counts.get(name) ?? 0) + change;
      if (count > 0) this.#counts.set(name, count);
      else {
        this.#counts.delete(name);
        this.#split.delete(name);
      }
    }
  }

  #judge(name: number): void {
    const share = (this.#counts.get(name) ?? 0) / this.#window.length;
    if (share > published.hot / this.#engines) this.#split.add(name);
    else if (share < published.cool / this.#engines) this.#split.delete(name);
  }
}

/** One scheduler with its own view of the engines. */
class DualMapScheduler {
  readonly #parts: RivalParts;
  readonly #region: number;
  readonly #instances: readonly Instance[];
  readonly #prefixes: HotPrefixes;

  constructor(parts: RivalParts, region: number) {
    this.#parts = parts;
    this.#region = region;
    this.#instances = parts.engines.map(
      (engine) => new Instance(engine, parts.placement.engines[engine.number]!, parts.parametersOf(engine.number)),
    );
    this.#prefixes = new HotPrefixes(parts.engines.length);
  }

  handle(request: SimRequest, ended: (outcome: FrontOutcome) => void): void {
    const nowMs = this.#parts.clock.nowMs();
    const [one, other] = this.#candidates(this.#prefixes.add(request));
    const isInTime = (instance: Instance): boolean =>
      instance.ttftMs(uncachedTokens(request, instance), nowMs) <= published.objectiveMs;
    if (!isInTime(one) && !isInTime(other)) {
      this.#rebalance(one);
      this.#rebalance(other);
    }
    const [inOne, inOther] = [one, other].map((instance) => instance.matchedTokens(request));
    const lighter = one.pendingTokens <= other.pendingTokens ? one : other;
    const warmer = inOne === inOther ? lighter : inOne! > inOther! ? one : other;
    const instance = isInTime(warmer) ? warmer : lighter;
    this.#send({ request, other: instance === one ? other : one, uncached: 0, hasBegun: false, ended }, instance);
  }

  /** Two engines; the second is the neighbour of the first if both hashes name the same. */
  #candidates(name: number): readonly [Instance, Instance] {
    const count = this.#instances.length;
    const [one, two] = seeds.map((seed) => hashString(String(name), seed) % count);
    return [this.#instances[one!]!, this.#instances[two === one ? (one! + 1) % count : two!]!];
  }

  #send(queued: Queued, instance: Instance): void {
    const { request } = queued;
    const { clock, scheduler, placement } = this.#parts;
    const predictedTokens = instance.matchedTokens(request);
    if (instance.queue.length === 0) instance.aliveMs = clock.nowMs();
    queued.uncached = uncachedTokens(request, instance);
    instance.pendingTokens += queued.uncached;
    instance.queue.push(queued);
    instance.save(request);
    const wayMs = placement.delayMs(this.#region, instance.region);
    const isHere = (): boolean => instance.queue.includes(queued);
    const leave = (): void => {
      const at = instance.queue.indexOf(queued);
      if (at === -1) return;
      instance.queue.splice(at, 1);
      instance.pendingTokens -= queued.uncached;
      instance.aliveMs = clock.nowMs();
    };
    let firstTokenMs = Number.NaN;
    const finish = (cachedTokens: number, error: string | undefined): void => {
      scheduler.after(wayMs, () => {
        leave();
        queued.ended({
          ...{ firstTokenMs, cachedTokens, error, endMs: clock.nowMs() },
          ...{ engine: error === undefined ? instance.engine.number : -1, predictedTokens, isSpill: false },
        });
      });
    };
    scheduler.after(wayMs, () => {
      // It may have moved on its way.
      if (!isHere()) return;
      const isTaken = instance.engine.submit(request, {
        firstToken: (timeMs) => {
          firstTokenMs = timeMs + wayMs;
          queued.hasBegun = true;
          scheduler.after(wayMs, () => {
            if (isHere()) instance.profile(queued.uncached, clock.nowMs() - instance.aliveMs);
            leave();
          });
        },
        progress() {},
        finished: ({ cachedTokens }) => finish(cachedTokens, undefined),
        lost: () => finish(Number.NaN, "the engine went away"),
      });
      if (!isTaken) finish(Number.NaN, "no engine is available");
    });
  }

  /** Moves what waits at an engine to its other candidate, what gains most first, until the rest keeps the objective. */
  #rebalance(instance: Instance): void {
    const nowMs = this.#parts.clock.nowMs();
    const predictedMs = new Map<Queued, number>();
    const predict = (): boolean => {
      let ahead = 0;
      let isLate = false;
      for (const queued of instance.queue) {
        const ttftMs = instance.ttftMs(queued.uncached, nowMs, ahead);
        predictedMs.set(queued, ttftMs);
        ahead += queued.uncached;
        isLate ||= ttftMs > published.objectiveMs;
      }
      return isLate;
    };
    if (!predict()) return;
    const thereMs = ({ request, other }: Queued): number => other.ttftMs(uncachedTokens(request, other), nowMs);
    const gains = instance
      .waiting()
      .map((queued) => ({ queued, gainMs: predictedMs.get(queued)! - thereMs(queued) }))
      .filter(({ gainMs }) => gainMs > 0)
      .sort((one, other) => other.gainMs - one.gainMs);
    for (const { queued } of gains) {
      if (thereMs(queued) >= published.objectiveMs || thereMs(queued) >= predictedMs.get(queued)!) continue;
      instance.queue.splice(instance.queue.indexOf(queued), 1);
      instance.pendingTokens -= queued.uncached;
      instance.engine.abort(queued.request);
      const to = queued.other;
      this.#send({ ...queued, other: instance }, to);
      if (!predict()) return;
    }
  }
}

/** An engine computes the last token of a prompt even if it has all blocks. */
const uncachedTokens = (request: SimRequest, instance: Instance): number =>
  Math.max(1, request.promptTokens - instance.matchedTokens(request));

function createDualMap(parts: RivalParts): Rival {
  const { scheduler, placement, random } = parts;
  const schedulers = placement.routers.map((region) => ({ region, own: new DualMapScheduler(parts, region) }));
  return {
    handle(request, region, ended) {
      const { region: at, own } = schedulers[random.integer(schedulers.length)]!;
      const wayMs = placement.clientDelayMs(region, at);
      const back = (outcome: FrontOutcome): void => {
        const { firstTokenMs, endMs } = outcome;
        scheduler.after(wayMs, () => ended({ ...outcome, firstTokenMs: firstTokenMs + wayMs, endMs: endMs + wayMs }));
      };
      scheduler.after(wayMs, () => own.handle(request, back));
    },
  };
}

export const dualMapRivals: Readonly<Record<string, CreateRival>> = { dualmap: createDualMap };
