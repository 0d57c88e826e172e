import { type Clock, copyOfSums } from "@espalier/core";
import { pullSetupMs } from "@espalier/policies";
import type { SharedLoad } from "@espalier/shared-tree";
import type { RoutingTarget } from "../routing-target.ts";
import { AnswerPace } from "./answer-pace.ts";
import { BusyShare } from "./busy-share.ts";
import { DecisionSnapshot, UnlearnedPace } from "./decision-snapshot.ts";
import { FetchRates, priorFetch } from "./fetch-rates.ts";
import { FleetSums } from "./fleet-sums.ts";
import { type LearnedFetch, type LearnedTimes, type SlowTier, slowTiers } from "./learned-times.ts";
import { PoolDemand } from "./pool-demand.ts";
import { PrefillRates, type PrefillSample, type PromptPart, type RatedTarget } from "./prefill-rates.ts";
import { SharedSteps } from "./shared-steps.ts";

/** Times of the engines of one pool, learned from this router's own requests and from those of other routers. */
export class PoolWork {
  /** What other routers have seen. */
  readonly fleet: FleetSums;
  readonly rates: PrefillRates;
  readonly fetches: FetchRates;
  readonly pace: AnswerPace;
  readonly steps = new SharedSteps({ observe: (target, sample) => this.#learn(target, sample) });
  /** For prompts sent before anything is learned. */
  readonly unlearned = new UnlearnedPace();
  readonly busy: BusyShare;
  /** What this router measures of the pool's load. */
  readonly demand: PoolDemand;
  readonly #clock: Clock;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.busy = new BusyShare(clock);
    this.demand = new PoolDemand(clock);
    this.fleet = new FleetSums(clock, {
      prefill: () => this.rates.sums,
      answers: () => this.pace.sums,
      fetches: (tier) => this.fetches.sums(tier),
      differences: () => this.rates.differences(),
    });
    this.rates = new PrefillRates(this.fleet);
    this.fetches = new FetchRates(this.fleet);
    this.pace = new AnswerPace(this.fleet);
  }

  /** What this router has learned itself, to be published. */
  get learned(): LearnedTimes {
    const answers = this.pace.sums.weight;
    return {
      fit: this.rates.ownFit,
      sums: copyOfSums(this.rates.sums),
      msPerOutputToken: answers > 0 ? this.pace.sums.right[0]! / answers : 0,
      answers,
      ageMs: this.fleet.ownAgeMs,
      targets: [...this.rates.differences()],
      fetches: this.#learnedFetches(),
    };
  }

  /** Number of prompts in the samples. */
  get samples(): number {
    return this.rates.samples + this.fetches.samples;
  }

  /** The pool at the time of a decision. */
  snapshot(shared: SharedLoad): DecisionSnapshot {
    return new DecisionSnapshot(this, shared, this.#clock.nowMs());
  }

  /** Milliseconds to fetch a token from a tier; NaN while nothing is learned. */
  fetchMsPerToken(target: RatedTarget, tier: SlowTier): number {
    return this.fetches.msPerKilotoken(target, tier, priorFetch(this.rates.msPerToken)) / 1e3;
  }

  /** Each prompt teaches either computing or fetching, because fetched tokens are not computed. */
  #learn(target: RatedTarget, sample: PrefillSample): void {
    if (!sample.fetched) this.rates.observe(target, sample);
    else this.learnFetch(target, sample);
  }

  /** Learns from a prompt for which blocks had to be fetched. */
  learnFetch(target: RatedTarget, sample: PrefillSample): void {
    const { fetched, elapsedMs, hasWaited } = sample;
    if (!fetched || hasWaited) return;
    const setupMs = fetched.peer > 0 ? pullSetupMs : 0;
    const computeMs = this.rates.firstTokenMs(target, sample) + setupMs;
    const atMs = this.#clock.nowMs();
    this.fetches.observe(target, { fetched, elapsedMs, computeMs, atMs }, priorFetch(this.rates.msPerToken));
  }

  #learnedFetches(): readonly LearnedFetch[] {
    // Own samples only: peers add their own.
    const prior = priorFetch(this.rates.ownFit.msPerKilotoken / 1e3);
    return slowTiers.flatMap((tier) => {
      const own = this.fetches.own(tier, prior);
      if (!own) return [];
      const { msPerKilotoken, sums, learnedMs } = own;
      return [{ tier, msPerKilotoken, sums: copyOfSums(sums), ageMs: this.#clock.nowMs() - learnedMs }];
    });
  }

  /** The work of a prompt that may be sent to a target. */
  prompt(target: RoutingTarget, part: PromptPart, shared: SharedLoad): PromptWork {
    return new PromptWork({ pool: this, clock: this.#clock, target, part, shared });
  }
}

interface PromptWorkParts {
  readonly pool: PoolWork;
  readonly clock: Clock;
  readonly target: RoutingTarget;
  readonly part: PromptPart;
  readonly shared: SharedLoad;
}

/** The work of one prompt at a target. The pool learns from it once the prompt is sent. */
export class PromptWork {
  readonly #parts: PromptWorkParts;
  #workMs = 0;
  #sentMs = Number.NaN;
  #hasWaited = false;
  #firstTokenMs = Number.NaN;
  #pulled: PrefillSample | undefined;

  constructor(parts: PromptWorkParts) {
    this.#parts = parts;
  }

  /** Expected milliseconds of computing, by what is learned so far. */
  get expectedMs(): number {
    const { pool, target, part } = this.#parts;
    return pool.rates.workMs(target, part);
  }

  /**
   * Call when it is sent, before the load is published.
   *
   * @returns expected milliseconds of computing, rounded up
   */
  sent(): number {
    const { pool, clock, target, part, shared } = this.#parts;
    const workMs = this.expectedMs;
    pool.busy.sent(target.index, workMs);
    pool.demand.sent(part, workMs);
    this.#workMs = Math.ceil(workMs);
    this.#sentMs = clock.nowMs();
    this.#hasWaited = target.load.pendingWorkMs + (shared.pendingWorkMs[target.index] ?? 0) > 0;
    return this.#workMs;
  }

  /** Call as soon as its first token arrives, before the load is published. */
  firstToken(): void {
    const { pool, clock, target, part, shared } = this.#parts;
    this.#firstTokenMs = clock.nowMs();
    const computedMs = Math.max(target.load.computedMs, shared.computedMs[target.index] ?? Number.NEGATIVE_INFINITY);
    // The way there and back is not the engine's time. It delays what is heard of earlier prompts as well.
    const beganMs = this.#sentMs + (target.networkMs || 0);
    const elapsedMs = this.#firstTokenMs - Math.max(beganMs, computedMs);
    const sample = { ...part, elapsedMs, hasWaited: this.#hasWaited || computedMs > beganMs };
    const isLast = target.load.pendingWorkMs + (shared.pendingWorkMs[target.index] ?? 0) <= this.#workMs;
    // Whether a pull brought anything is known only when the answer is complete.
    if (part.fetched && part.fetched.peer > 0) {
      this.#pulled = sample;
      return;
    }
    pool.steps.computed(target, sample, isLast);
    if (!part.fetched) pool.fleet.learned();
  }

  /** The pull that belongs to the prompt brought what it should: its time teaches how long pulls take. */
  pulled(): void {
    const { pool, target } = this.#parts;
    const sample = this.#pulled;
    this.#pulled = undefined;
    if (sample) pool.learnFetch(target, sample);
  }

  /** The answer is complete. @param tokens number of its tokens */
  ended(tokens: number): void {
    const { pool, clock } = this.#parts;
    pool.pace.observe(tokens, clock.nowMs() - this.#firstTokenMs);
  }
}
