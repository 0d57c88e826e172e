import type { Admission, AdmissionListener, AdmissionRequest, AdmissionTicket } from "@espalier/admission";
import type { Clock, EspalierError } from "@espalier/common";
import type { ColdPrompt } from "../memory/cold-prompt.ts";
import {
  type ChosenAlone,
  type ChosenPair,
  type PairedRequest,
  type PairPlanner,
  type PairTarget,
  servesAlone,
} from "../pairs/pair-planner.ts";
import { type Leg, type PairCarrier, PairRun } from "../pairs/pair-run.ts";
import type { PrefixKnowledge } from "../prefix/prefix-knowledge.ts";
import type { Restriction, Selection } from "../select-target.ts";
import { Dispatch } from "./dispatch.ts";
import type { FailureKind, Retries } from "./retries.ts";

/** What a request waits in until its turn comes. */
export interface RequestQueue<Target extends PairTarget> {
  readonly admission: Admission<Target>;
  readonly request: AdmissionRequest;
  /** Undefined for what need not wait for engines' memory. */
  readonly cold: ColdPrompt<Target> | undefined;
}

/** Who carries a request to engines: over HTTP, or in virtual time. */
export interface RequestCarrier<Target extends PairTarget> extends PairCarrier<Target> {
  /** The pool's targets now: engines may have come and gone since the request was planned. */
  targets(): readonly Target[];
  /** Chooses among targets for the client's own request. @returns undefined when none is usable */
  select(
    targets: readonly Target[],
    restriction: Restriction<Target> & { readonly accepts: (target: Target) => boolean },
  ): Selection<Target> | undefined;
  /** Its turn has come: the first attempt is to be made before this returns, so that the next one's turn sees it. */
  admitted(): void;
  /** It does not go to an engine: `queue_full` or `deadline_missed`. */
  shed(error: EspalierError): void;
}

export interface LifecycleParts<Target extends PairTarget> {
  readonly clock: Clock;
  readonly knowledge: Pick<PrefixKnowledge, "place">;
  readonly request: PairedRequest<Target>;
  readonly retries: Retries;
  readonly carrier: RequestCarrier<Target>;
  /** Undefined in a pool whose engines hand over no KV blocks. */
  readonly planner: PairPlanner<Target> | undefined;
  /** Undefined for what never waits. */
  readonly queue: RequestQueue<Target> | undefined;
  /** Told how it was decided whether one engine or two serve the request; see `PairRunParts`. */
  readonly onPlanned?: ((chosen: ChosenPair<Target> | ChosenAlone<Target>, begunMs: number) => void) | undefined;
}

/** An attempt at an answer: a target that is charged with it, and which part of the work it has. */
export interface PlannedAttempt<Target extends PairTarget> {
  readonly dispatch: Dispatch<Target>;
  readonly leg: Leg;
}

/** How an answer ended. */
export interface AnswerEnd {
  /** The client has a whole answer. */
  readonly isCompleted: boolean;
  /** Of the answer; 0 where there is none. */
  readonly status: number;
  readonly isStream: boolean;
  /** As the engine reports; undefined where it does not. */
  readonly cachedTokens: number | undefined;
  readonly outputTokens: number;
}

/**
 * One request from its arrival to its end, apart from the wire: waits for its turn, chooses the target of each attempt,
 * charges it, notes what its cache will hold, and gives everything back however the request ends. It is driven by what
 * happens to the request; the router and the simulator of fleets drive this same code.
 *
 * ```
 * enter -> admitted -> next -> started -> firstToken -> progress* -> finish
 *                       ^                     |
 *                       +------ failed -------+ (before the first byte)
 * ```
 */
export class RequestLifecycle<Target extends PairTarget> implements AdmissionListener<Target> {
  readonly retries: Retries;
  /** Attempts that went out. */
  attempts = 0;
  readonly #parts: LifecycleParts<Target>;
  readonly #tried = new Set<string>();
  readonly #pair: PairRun<Target> | undefined;
  #current: PlannedAttempt<Target> | undefined;
  #ticket: AdmissionTicket | undefined;
  #isAdmitted = false;
  /** Targets with room for the first attempt; a further one may go anywhere. */
  #open: readonly Target[] | undefined;
  #firstTokenMs = Number.NaN;

  constructor(parts: LifecycleParts<Target>) {
    const { clock, knowledge, planner, request, retries, carrier, onPlanned } = parts;
    this.#parts = parts;
    this.retries = retries;
    if (!planner) return;
    this.#pair = new PairRun({ clock, knowledge, planner, request, retries, carrier, onDecided: onPlanned });
  }

  /** Of the attempt under way, or of the last one. */
  get selection(): Selection<Target> | undefined {
    return this.#current?.dispatch.selection;
  }

  /** What was chosen to compute the prompt; undefined where the engine that answers does. */
  get prefill(): Selection<Target> | undefined {
    return this.#pair?.prefill;
  }

  /** How long it waited for its turn. */
  get queuedMs(): number {
    return this.#ticket?.waitedMs ?? 0;
  }

  /** The request is complete: goes to an engine at once, or when its turn comes. */
  enter(): void {
    const { queue, carrier } = this.#parts;
    if (!queue) {
      carrier.admitted();
      return;
    }
    const ticket = queue.admission.enter(queue.request, this);
    this.#ticket ??= ticket;
  }

  /** See `AdmissionListener`, as are the next three. */
  targets(): readonly Target[] {
    return this.#parts.carrier.targets();
  }

  mayGo(): boolean {
    return this.#parts.queue?.cold?.mayGo(this.targets()) ?? true;
  }

  admitted(open: readonly Target[], ticket: AdmissionTicket): void {
    this.#ticket = ticket;
    this.#isAdmitted = true;
    this.#open = this.#parts.queue?.cold?.among(open) ?? open;
    this.#parts.carrier.admitted();
  }

  refused(error: EspalierError): void {
    this.#parts.carrier.shed(error);
  }

  /**
   * Chooses and charges the target of the next attempt.
   *
   * @returns undefined when nobody is left; `later` when the carrier's `resume` will be called
   */
  next(): PlannedAttempt<Target> | "later" | undefined {
    const { knowledge, request } = this.#parts;
    if (this.retries.isDangerous) return undefined;
    const step = this.#pair?.next(this.#tried);
    if (step === "later") return "later";
    const selection = step?.selection ?? this.#chooseAlone();
    if (!selection) return undefined;
    const { promptTokens } = request.features;
    const isPrefilled = this.prefill !== undefined;
    const dispatch = new Dispatch(knowledge, request, selection, { isPrefilled });
    this.#ticket?.dispatched(Math.max(1, promptTokens - selection.matchedTokens));
    this.#current = { dispatch, leg: step?.leg ?? "whole" };
    return this.#current;
  }

  /** The attempt goes out. */
  started(): void {
    this.attempts++;
    this.#pair?.started();
  }

  /** The target of the attempt cannot be asked after all: another one is, as if this one had never been chosen. */
  skipped(): void {
    const dispatch = this.#current?.dispatch;
    if (!dispatch) return;
    this.#tried.add(dispatch.target.key);
    dispatch.release();
    dispatch.withdraw();
  }

  /** @param isBegun whether a byte of the answer has gone to the client */
  failed(kind: FailureKind, isBegun: boolean): void {
    this.#pair?.failed(kind);
    const dispatch = this.#current?.dispatch;
    if (!dispatch) return;
    if (kind !== "declined" && kind !== "withdrawn") this.#tried.add(dispatch.target.key);
    dispatch.release();
    if (!isBegun) dispatch.withdraw();
  }

  /** Looks at the beginning of an answer; see `PairRun.judge`. */
  judge(status: number, head: Buffer, ended: boolean): "pass" | "decline" | "more" {
    return this.#pair?.judge(status, head, ended) ?? "pass";
  }

  /** The answer begins. */
  answering(status: number): void {
    this.#pair?.answering(status);
    if (status >= 400) this.#current?.dispatch.withdraw();
  }

  /** @param isStream whether the answer comes as it is written */
  firstToken(isStream: boolean): void {
    this.#firstTokenMs = this.#parts.clock.nowMs();
    this.#current?.dispatch.firstToken(isStream);
    this.#pair?.firstByte();
    this.#parts.queue?.admission.eased();
  }

  /** So many more tokens of the answer. */
  progress(tokens: number): void {
    this.#current?.dispatch.progress(tokens);
  }

  /** The client left, or the router goes, while the request waited for its turn. */
  leave(): void {
    this.#ticket?.leave();
  }

  /** The request is over. */
  finish({ isCompleted, status, isStream, cachedTokens, outputTokens }: AnswerEnd): void {
    const dispatch = this.#current?.dispatch;
    dispatch?.release();
    if (isCompleted && isStream) dispatch?.streamed(outputTokens);
    if (!isCompleted && Number.isNaN(this.#firstTokenMs)) dispatch?.withdraw();
    // Tokens that came from another engine say nothing of this one's cache.
    dispatch?.answered(isCompleted && !this.prefill ? cachedTokens : undefined);
    this.#pair?.finish({
      isAnswered: isCompleted && status < 400,
      selection: this.selection,
      outputTokens,
      writingMs: isStream ? this.#parts.clock.nowMs() - this.#firstTokenMs : 0,
    });
    if (!this.#isAdmitted) return;
    this.#ticket?.ended(outputTokens);
    this.#parts.queue?.admission.eased();
  }

  #chooseAlone(): Selection<Target> | undefined {
    const { planner, request, carrier } = this.#parts;
    const { pool, onlyEngine } = request;
    const tried = this.#tried;
    const targets = (tried.size === 0 ? this.#open : undefined) ?? request.targets;
    const accepts = planner?.alonePredicate(pool, targets, tried) ?? servesAlone;
    return carrier.select(targets, { tried, onlyEngine, accepts });
  }
}
