import type { Clock } from "@espalier/common";
import { cacheVerdict, transferVerdict } from "@espalier/disaggregation";
import type { LoadTicket } from "@espalier/workers";
import type { PrefixKnowledge } from "../prefix/prefix-knowledge.ts";
import { Dispatch } from "../request/dispatch.ts";
import type { FailureKind, Retries } from "../request/retries.ts";
import type { Selection } from "../select-target.ts";
import {
  type ChosenAlone,
  type ChosenPair,
  canServeAlone,
  type PairedRequest,
  type PairPlanner,
  type PairTarget,
} from "./pair-planner.ts";
import type { SplitReason } from "./split-metrics.ts";

/** What an attempt at an answer for the client is: the client's own request, or the part of a decode engine. */
export type Leg = "whole" | "probe" | "decode";

/** The next attempt. */
export interface PairStep<Target extends PairTarget> {
  readonly selection: Selection<Target>;
  readonly leg: Leg;
}

/** How a prefill leg ended. */
export interface PrefillOutcome {
  readonly isDone: boolean;
  /** What the engine answered, where that was asked for and was not too long. */
  readonly answer?: Buffer | undefined;
}

/** How legs reach their engines. Nothing is called from inside a constructor. */
export interface PairCarrier<Target extends PairTarget> {
  readonly isStream: boolean;
  /** Gets ready what both legs are told. @param ready called once, now or later: false when the prefill engine cannot be asked */
  prepare(pair: ChosenPair<Target>, ready: (isReady: boolean) => void): void;
  /**
   * Has a prefill engine compute the prompt.
   *
   * @param keepsAnswer whether what it answers is wanted
   * @param settled called once, unless the leg is cancelled, and not before this has returned
   */
  prefill(
    dispatch: Dispatch<Target>,
    keepsAnswer: boolean,
    settled: (outcome: PrefillOutcome) => void,
  ): { cancel(): void };
  /** @returns whether the answer of a prefill engine, if it was to be kept, holds what a decode engine can go on with */
  handOver(answer: Buffer | undefined): boolean;
  /** Ends the attempt under way before a byte of its answer. */
  withdraw(): void;
  /** What `next` had to wait for is there: it is to be asked again. */
  resume(): void;
}

export interface PairRunParts<Target extends PairTarget> {
  readonly clock: Clock;
  readonly knowledge: Pick<PrefixKnowledge, "place">;
  readonly planner: PairPlanner<Target>;
  readonly request: PairedRequest<Target>;
  readonly retries: Pick<Retries, "isDangerous">;
  readonly carrier: PairCarrier<Target>;
  /** Told how it was decided who serves the request, and when that began on the clock; for those who watch. */
  readonly onDecided?: ((chosen: ChosenPair<Target> | ChosenAlone<Target>, begunMs: number) => void) | undefined;
}

/** How a request ended. */
export interface PairEnd<Target extends PairTarget> {
  /** The client has a whole answer, and no error. */
  readonly isAnswered: boolean;
  /** Of the engine that answered. */
  readonly selection: Selection<Target> | undefined;
  readonly outputTokens: number;
  /** From the first byte of the answer to its last; 0 for one that came as a whole. */
  readonly writingMs: number;
}

/** Pairs that are tried for a request that no engine can serve alone. */
const maxPairs = 3;

type Stage = "undecided" | "probing" | "decoding" | "alone";
type Next<Target extends PairTarget> = PairStep<Target> | "later" | undefined;

/** A prompt that is computed for another engine. */
interface RunningPrefill<Target extends PairTarget> {
  readonly dispatch: Dispatch<Target>;
  readonly call: { cancel(): void };
}

/** One request that may be served by two engines: who is asked next, and when the other engine must stop. */
export class PairRun<Target extends PairTarget> {
  readonly #parts: PairRunParts<Target>;
  readonly #triedPrefill = new Set<string>();
  #tried: ReadonlySet<string> = new Set();
  #stage: Stage = "undecided";
  #reason: SplitReason = "unsupported";
  #pairs = 0;
  #pair: ChosenPair<Target> | undefined;
  /** As long as it runs. */
  #running: RunningPrefill<Target> | undefined;
  /** Whether a prefill engine was asked for the attempt under way. */
  #hasPrefill = false;
  /** Keeps the decode engine's place while the prompt is computed elsewhere. */
  #reservation: LoadTicket | undefined;
  /** What `next` says once that is known. */
  #due: { readonly next: Next<Target> } | undefined;
  #isWaiting = false;
  #lastFailure: FailureKind | undefined;
  #startedMs = Number.NaN;
  #prefillDoneMs = Number.NaN;
  #status = 0;
  #hasBegun = false;
  /** Whether the decode engine said that caches hold too little. */
  #isShort = false;
  #isOver = false;

  constructor(parts: PairRunParts<Target>) {
    this.#parts = parts;
  }

  /** Who computed the prompt; undefined for an engine that answers alone. */
  get prefill(): Selection<Target> | undefined {
    return this.#stage === "decoding" ? this.#pair?.prefill : undefined;
  }

  /**
   * @param tried targets that have failed the request
   * @returns undefined when one engine is to be chosen, as for any request; `later` when `resume` will be called
   */
  next(tried: ReadonlySet<string>): Next<Target> {
    this.#tried = tried;
    if (this.#due) {
      const { next } = this.#due;
      this.#due = undefined;
      return next;
    }
    if (this.#isWaiting) return "later";
    switch (this.#stage) {
      case "undecided":
        return this.#decide();
      case "alone":
        return undefined;
      case "probing":
        return this.#isShort ? this.#prefillFirst() : this.#fallBack("decode_failed");
      case "decoding":
        return this.#decodeElsewhere();
    }
  }

  /** The attempt goes out. */
  started(): void {
    this.#startedMs = this.#parts.clock.nowMs();
    if (this.#stage !== "decoding" || this.#pair?.protocol.order !== "concurrent" || this.#hasPrefill) return;
    this.#beginPrefill(false, (isDone) => {
      if (!isDone && !this.#hasBegun && !this.#isOver) this.#parts.carrier.withdraw();
    });
  }

  failed(kind: FailureKind): void {
    this.#lastFailure = kind;
  }

  judge(status: number, head: Buffer, ended: boolean): "pass" | "decline" | "more" {
    if (this.#stage !== "probing" && this.#stage !== "decoding") return "pass";
    const { isStream } = this.#parts.carrier;
    const transferred = transferVerdict(status, head, isStream, ended);
    this.#isShort = false;
    if (this.#stage === "decoding" || transferred !== "pass" || status !== 200) return transferred;
    const cached = cacheVerdict(head, isStream, ended);
    this.#isShort = cached === "decline";
    return cached;
  }

  /** The client gets an answer of this status. */
  answering(status: number): void {
    this.#status = status;
  }

  firstByte(): void {
    this.#hasBegun = true;
    const { planner, request } = this.#parts;
    const pair = this.#pair;
    const waitedMs = this.#transferMs();
    if (this.#stage === "probing") {
      this.#stage = "alone";
      this.#reason = "cached";
    } else if (this.#stage === "decoding" && pair && this.#status === 200 && waitedMs >= 0) {
      planner.metrics.transfer(waitedMs / 1_000);
      const movedTokens = Math.max(1, request.features.promptTokens - pair.decode.matchedTokens);
      planner.rolesOf(request.pool).cost.observe(movedTokens, waitedMs);
    }
  }

  /** The request is over: what still runs for it ends, unless the client has its whole answer. */
  finish({ isAnswered, selection, outputTokens, writingMs }: PairEnd<Target>): void {
    this.#isOver = true;
    this.#reservation?.end();
    // SGLang's prefill engine takes a caller that goes away for a request that is aborted.
    if (!isAnswered) this.#cancelPrefill();
    // One that left the router's queue before its turn was not decided on.
    if (this.#stage === "undecided") return;
    const { planner, request } = this.#parts;
    planner.metrics.finished(this.#stage === "decoding" ? "disaggregated" : "aggregated", this.#reason);
    if (!isAnswered) return;
    const { promptTokens } = request.features;
    const matchedTokens = (this.prefill ?? selection)?.matchedTokens ?? 0;
    const served = { promptTokens, uncachedTokens: promptTokens - matchedTokens, outputTokens, writingMs };
    planner.served(request, selection?.target, served);
  }

  #decide(): Next<Target> {
    const { clock, planner, request, carrier, onDecided } = this.#parts;
    const begunMs = onDecided ? clock.nowMs() : 0;
    const chosen = planner.choose(request, { any: this.#tried, prefill: this.#triedPrefill });
    onDecided?.(chosen, begunMs);
    if (!chosen.protocol) {
      this.#stage = "alone";
      // What went wrong with a pair tells more than why there is no other one.
      if (this.#pairs === 0) this.#reason = chosen.reason;
      return chosen.whole && { selection: chosen.whole, leg: "whole" };
    }
    this.#pairs++;
    this.#pair = chosen;
    this.#reason = chosen.reason;
    return this.#await((done) => {
      carrier.prepare(chosen, (isReady) => done(() => (isReady ? this.#begin(chosen) : this.#giveUpPrefill())));
    });
  }

  #begin(pair: ChosenPair<Target>): Next<Target> {
    switch (pair.protocol.order) {
      case "serial":
        return this.#prefillFirst();
      case "decode_first":
        this.#stage = "probing";
        return { selection: pair.decode, leg: "probe" };
      case "concurrent":
        this.#stage = "decoding";
        this.#parts.carrier.handOver(undefined);
        return { selection: pair.decode, leg: "decode" };
    }
  }

  #prefillFirst(): Next<Target> {
    const { request, carrier } = this.#parts;
    const { decode } = this.#pair!;
    this.#isShort = false;
    this.#lastFailure = undefined;
    const { activeBlocks, target } = decode;
    this.#reservation = target.load.begin({ ...request.features, uncachedTokens: 1, activeBlocks });
    return this.#await((done) => {
      this.#beginPrefill(true, (isDone, answer) => {
        this.#reservation?.end();
        done(() => {
          if (!isDone) return this.#giveUpPrefill();
          if (!carrier.handOver(answer)) return this.#fallBack("nothing_transferred");
          this.#stage = "decoding";
          return target.usable ? { selection: decode, leg: "decode" } : this.#decodeElsewhere();
        });
      });
    });
  }

  /**
   * Waits for something that may be there at once.
   *
   * @param begin calls what it is given once, with what follows
   */
  #await(begin: (done: (follow: () => Next<Target>) => void) => void): Next<Target> {
    let first: { readonly next: Next<Target> } | undefined;
    let isLate = false;
    begin((follow) => {
      if (this.#isOver) return;
      this.#isWaiting = false;
      const next = follow();
      if (!isLate) first = { next };
      else if (next !== "later") {
        this.#due = { next };
        this.#parts.carrier.resume();
      }
    });
    if (first) return first.next;
    isLate = true;
    this.#isWaiting = true;
    return "later";
  }

  #beginPrefill(keepsAnswer: boolean, then: (isDone: boolean, answer: Buffer | undefined) => void): void {
    const { clock, knowledge, request, carrier, planner } = this.#parts;
    const selection = this.#pair!.prefill;
    const begunMs = clock.nowMs();
    this.#prefillDoneMs = Number.NaN;
    this.#hasPrefill = true;
    const dispatch = new Dispatch(knowledge, request, selection, { expectedOutputTokens: 1 });
    const call = carrier.prefill(dispatch, keepsAnswer, ({ isDone, answer }) => {
      if (isDone) planner.metrics.prefill((clock.nowMs() - begunMs) / 1_000);
      // Where the answer is not kept it comes when another engine has fetched the prompt, and not when that is computed.
      settle(dispatch, isDone, keepsAnswer);
      if (this.#running?.dispatch !== dispatch) return;
      this.#running = undefined;
      if (isDone) this.#prefillDoneMs = clock.nowMs();
      else this.#triedPrefill.add(selection.target.key);
      then(isDone, answer);
    });
    this.#running = { dispatch, call };
  }

  #cancelPrefill(): void {
    const running = this.#running;
    if (!running) return;
    this.#running = undefined;
    running.call.cancel();
    settle(running.dispatch, false, false);
  }

  #giveUpPrefill(): Next<Target> {
    this.#triedPrefill.add(this.#pair!.prefill.target.key);
    return this.#fallBack("prefill_failed");
  }

  /** The decode engine has failed before a byte, or was given up because the prefill engine has. */
  #decodeElsewhere(): Next<Target> {
    const { planner, request } = this.#parts;
    const { protocol, prefill } = this.#pair!;
    if (protocol.order === "concurrent") this.#cancelPrefill();
    if (this.#lastFailure === "declined") return this.#fallBack("transfer_failed");
    if (this.#lastFailure === "withdrawn") return this.#fallBack("prefill_failed");
    const other = protocol.isPortable ? planner.chooseDecode(request, this.#tried, protocol) : undefined;
    if (!other || other.target.engine === prefill.target.engine) return this.#fallBack("decode_failed");
    return { selection: other, leg: "decode" };
  }

  /** One engine, or another pair where none can do it alone. */
  #fallBack(reason: SplitReason): Next<Target> {
    this.#stage = "alone";
    this.#hasPrefill = false;
    this.#reason = reason;
    const { request, retries } = this.#parts;
    if (canServeAlone(request.targets, this.#tried)) return undefined;
    return this.#pairs < maxPairs && !retries.isDangerous ? this.#decide() : undefined;
  }

  /** From the later of the prefill's end and the dispatch of the decode leg; NaN while the prefill has not ended. */
  #transferMs(): number {
    return this.#parts.clock.nowMs() - Math.max(this.#prefillDoneMs, this.#startedMs);
  }
}

/** Takes in how a prefill leg ended. @param isPrompt see `Dispatch.firstToken` */
function settle<Target extends PairTarget>(dispatch: Dispatch<Target>, isDone: boolean, isPrompt: boolean): void {
  if (isDone) dispatch.firstToken(isPrompt);
  dispatch.release();
  if (!isDone) dispatch.withdraw();
  dispatch.answered(undefined);
}
