import type { Clock } from "@espalier/core";
import type { LoadTicket } from "@espalier/engines";
import { cacheVerdict, transferVerdict } from "../disaggregation/index.ts";
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

/** The kind of an attempt at an answer: the client's own request, or a decode engine's part of it. */
export type Leg = "whole" | "probe" | "decode";

/** The next attempt. */
interface PairStep<Target extends PairTarget> {
  readonly selection: Selection<Target>;
  readonly leg: Leg;
}

/** How a prefill leg ended. */
export interface PrefillOutcome {
  readonly isDone: boolean;
  /** The engine's answer, if it was asked for and not too long. */
  readonly answer?: Buffer | undefined;
}

/** Sends legs to their engines. Constructors call nothing here. */
export interface PairCarrier<Target extends PairTarget> {
  readonly isStream: boolean;
  /**
   * Prepares what both legs need. @param ready called once, now or later; false if the prefill engine cannot be asked
   */
  prepare(pair: ChosenPair<Target>, ready: (isReady: boolean) => void): void;
  /**
   * Has a prefill engine compute the prompt.
   *
   * @param keepsAnswer whether the answer is needed
   * @param settled called once unless the leg is cancelled, and never before this returns
   */
  prefill(
    dispatch: Dispatch<Target>,
    keepsAnswer: boolean,
    settled: (outcome: PrefillOutcome) => void,
  ): { cancel(): void };
  /** @returns whether the prefill engine's answer, if needed, names what a decode engine can fetch */
  handOver(answer: Buffer | undefined): boolean;
  /** Ends the present attempt before a byte of its answer. */
  withdraw(): void;
  /** What `next` waited for has arrived: call `next` again. */
  resume(): void;
}

export interface PairRunParts<Target extends PairTarget> {
  readonly clock: Clock;
  readonly knowledge: Pick<PrefixKnowledge, "place" | "reported">;
  readonly planner: PairPlanner<Target>;
  readonly request: PairedRequest<Target>;
  readonly retries: Pick<Retries, "isDangerous">;
  readonly carrier: PairCarrier<Target>;
  /** Whether the request's class yields to others. */
  readonly yields: () => boolean;
  /** Called with the decision who serves the request, and its start on the clock. For observers. */
  readonly onDecided?: ((chosen: ChosenPair<Target> | ChosenAlone<Target>, begunMs: number) => void) | undefined;
}

/** How a request ended. */
export interface PairEnd<Target extends PairTarget> {
  /** Whether the client has a whole answer without an error. */
  readonly isAnswered: boolean;
  /** Selection of the engine that answered. */
  readonly selection: Selection<Target> | undefined;
  readonly outputTokens: number;
  /** From the first byte of the answer to the last; 0 for a non-streamed answer. */
  readonly writingMs: number;
}

/** Pairs to try for a request that no engine can serve alone. */
const maxPairs = 3;

type Stage = "undecided" | "probing" | "decoding" | "alone";
type Next<Target extends PairTarget> = PairStep<Target> | "later" | undefined;

/** A prompt that one engine computes for another. */
interface RunningPrefill<Target extends PairTarget> {
  readonly dispatch: Dispatch<Target>;
  readonly call: { cancel(): void };
}

/** One request that two engines may serve: chooses the next attempt, and when the other engine must stop. */
export class PairRun<Target extends PairTarget> {
  readonly #parts: PairRunParts<Target>;
  readonly #triedPrefill = new Set<string>();
  #tried: ReadonlySet<string> = new Set();
  #stage: Stage = "undecided";
  #reason: SplitReason = "unsupported";
  #pairs = 0;
  #pair: ChosenPair<Target> | undefined;
  /** Defined while it runs. */
  #running: RunningPrefill<Target> | undefined;
  /** Whether a prefill engine was asked for the present attempt. */
  #hasPrefill = false;
  /** Reserves the decode engine's capacity while another engine computes the prompt. */
  #reservation: LoadTicket | undefined;
  /** What `next` returns once that is known. */
  #due: { readonly next: Next<Target> } | undefined;
  #isWaiting = false;
  #lastFailure: FailureKind | undefined;
  #startedMs = Number.NaN;
  #prefillDoneMs = Number.NaN;
  #status = 0;
  #hasBegun = false;
  /** Whether the decode engine reported that caches have too little of the prompt. */
  #isShort = false;
  #isOver = false;

  constructor(parts: PairRunParts<Target>) {
    this.#parts = parts;
  }

  /** The engine that computed the prompt; undefined if one engine does everything. */
  get prefill(): Selection<Target> | undefined {
    return this.#stage === "decoding" ? this.#pair?.prefill : undefined;
  }

  /**
   * @param tried targets that have failed the request
   * @returns undefined to choose one engine, as for any request; `later` if `resume` will be called
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

  /** The attempt was sent. */
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

  /** The client gets an answer with this status. */
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

  /** The request is over. Ends what still runs for it, unless the client has its whole answer. */
  finish({ isAnswered, selection, outputTokens, writingMs }: PairEnd<Target>): void {
    this.#isOver = true;
    this.#reservation?.end();
    // SGLang's prefill engine treats a caller that disconnects as an aborted request.
    if (!isAnswered) this.#cancelPrefill();
    // A request that left the router's queue before its turn was never decided.
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
      // The failure of a pair says more than the reason why there is no other pair.
      if (this.#pairs === 0) this.#reason = chosen.reason;
      return chosen.whole && { selection: chosen.whole, leg: "whole" };
    }
    planner.rolesOf(request.pool).paired();
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
    const { request, carrier, yields } = this.#parts;
    const { decode } = this.#pair!;
    this.#isShort = false;
    this.#lastFailure = undefined;
    const { activeBlocks, target } = decode;
    this.#reservation = target.load.begin({ ...request.features, uncachedTokens: 1, activeBlocks, yields: yields() });
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
   * Waits for something that may already be there.
   *
   * @param begin calls its argument once, with what follows
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
    const dispatch = new Dispatch(knowledge, request, selection, {
      expectedOutputTokens: 1,
      yields: this.#parts.yields(),
    });
    const ended: Parameters<typeof carrier.prefill>[2] = ({ isDone, answer }) => {
      if (isDone) planner.metrics.prefill((clock.nowMs() - begunMs) / 1_000);
      // If the answer is not kept, it comes when another engine has fetched the prompt, not when the prompt is
      // computed.
      settle(dispatch, isDone, keepsAnswer);
      if (this.#running?.dispatch !== dispatch) return;
      this.#running = undefined;
      if (isDone) this.#prefillDoneMs = clock.nowMs();
      else this.#triedPrefill.add(selection.target.key);
      then(isDone, answer);
    };
    try {
      this.#running = { dispatch, call: carrier.prefill(dispatch, keepsAnswer, ended) };
    } catch (error) {
      settle(dispatch, false, false);
      throw error;
    }
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

  /** The decode engine failed before a byte, or was given up because the prefill engine failed. */
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

  /** Falls back to one engine, or to another pair if no engine can serve the request alone. */
  #fallBack(reason: SplitReason): Next<Target> {
    this.#stage = "alone";
    this.#hasPrefill = false;
    this.#reason = reason;
    const { request, retries } = this.#parts;
    if (canServeAlone(request.targets, this.#tried)) return undefined;
    return this.#pairs < maxPairs && !retries.isDangerous ? this.#decide() : undefined;
  }

  /** From the end of the prefill or the dispatch of the decode leg, whichever is later; NaN until the prefill ends. */
  #transferMs(): number {
    return this.#parts.clock.nowMs() - Math.max(this.#prefillDoneMs, this.#startedMs);
  }
}

/** Records how a prefill leg ended. @param isPrompt see `Dispatch.firstToken` */
function settle<Target extends PairTarget>(dispatch: Dispatch<Target>, isDone: boolean, isPrompt: boolean): void {
  if (isDone) dispatch.firstToken(isPrompt);
  dispatch.release();
  if (!isDone) dispatch.withdraw();
  dispatch.answered(undefined);
}
