import type { Clock, EspalierError } from "@espalier/core";
import type { Admission } from "./admission/admission.ts";
import type { AdmissionListener, AdmissionRequest, AdmissionTicket } from "./admission/admission-request.ts";
import type { Exclusion } from "./decision-log.ts";
import type { ColdPrompt } from "./memory/cold-prompt.ts";
import {
  type ChosenAlone,
  type ChosenPair,
  type PairedRequest,
  type PairPlanner,
  type PairTarget,
  servesAlone,
} from "./pairs/pair-planner.ts";
import { type Leg, type PairCarrier, PairRun } from "./pairs/pair-run.ts";
import type { PrefixKnowledge } from "./prefix/prefix-knowledge.ts";
import { Dispatch } from "./request/dispatch.ts";
import type { FailureKind, Retries } from "./request/retries.ts";
import type { Restriction, Selection } from "./select-target.ts";

/** The queue in which a request waits for its turn. */
export interface RequestQueue<Target extends PairTarget> {
  readonly admission: Admission<Target>;
  readonly request: AdmissionRequest;
  /** Undefined if the request need not wait for engines' memory. */
  readonly cold: ColdPrompt<Target> | undefined;
}

/** Carries a request to engines: over HTTP, or in virtual time. */
export interface RequestCarrier<Target extends PairTarget> extends PairCarrier<Target> {
  /** The pool's present targets. Engines may have come and gone since the request was planned. */
  targets(): readonly Target[];
  /** Chooses a target for the client's own request. @returns undefined if none is usable */
  select(
    targets: readonly Target[],
    restriction: Restriction<Target> & { readonly accepts: (target: Target) => boolean },
  ): Selection<Target> | undefined;
  /** Prompt tokens that the target with the most of them cached would compute; undefined if that is not known. */
  uncachedTokens(): number | undefined;
  /**
   * Its turn has come. The carrier must make the first attempt before it returns, so that the next request's turn sees
   * it.
   */
  admitted(): void;
  /** The request is rejected with `queue_full` or `deadline_missed`. */
  shed(error: EspalierError): void;
}

export interface LifecycleParts<Target extends PairTarget> {
  readonly clock: Clock;
  readonly knowledge: Pick<PrefixKnowledge, "place" | "reported">;
  readonly request: PairedRequest<Target>;
  readonly retries: Retries;
  readonly carrier: RequestCarrier<Target>;
  /** Undefined in a pool whose engines do not transfer KV blocks. */
  readonly planner: PairPlanner<Target> | undefined;
  /** Undefined for requests that never wait. */
  readonly queue: RequestQueue<Target> | undefined;
  /** Called with the decision whether one engine or two serve the request; see `PairRunParts`. */
  readonly onPlanned?: ((chosen: ChosenPair<Target> | ChosenAlone<Target>, begunMs: number) => void) | undefined;
}

/** One attempt at an answer: the target that is charged with it, and its part of the work. */
export interface PlannedAttempt<Target extends PairTarget> {
  readonly dispatch: Dispatch<Target>;
  readonly leg: Leg;
}

/** How an answer ended. */
export interface AnswerEnd {
  /** Whether the client has a whole answer. */
  readonly isCompleted: boolean;
  /** Status of the answer; 0 without one. */
  readonly status: number;
  readonly isStream: boolean;
  /** As the engine reports; undefined if it does not. */
  readonly cachedTokens: number | undefined;
  readonly outputTokens: number;
  /** Tokens among them that another target generated before; 0 by default. */
  readonly resumedTokens?: number | undefined;
}

/** Of nearly all requests. */
const noneTried: ReadonlySet<string> = new Set();

/**
 * One request from its arrival to its end, independent of the wire. It waits for its turn, chooses the target of each
 * attempt, charges it, notes what its cache will hold, and gives everything back however the request ends. Events of
 * the request drive it. The router and the fleet simulator run this same code.
 *
 * ```
 * enter -> admitted -> next -> started -> firstToken -> progress* -> finish
 *                       ^                     |
 *                       +------ failed -------+ (before the first byte)
 * ```
 */
export class RequestLifecycle<Target extends PairTarget> implements AdmissionListener<Target> {
  readonly retries: Retries;
  /** Attempts that were sent. */
  attempts = 0;
  readonly #parts: LifecycleParts<Target>;
  /** Targets that failed; undefined while none has. */
  #failed: Set<string> | undefined;
  readonly #pair: PairRun<Target> | undefined;
  #current: PlannedAttempt<Target> | undefined;
  #ticket: AdmissionTicket | undefined;
  #isAdmitted = false;
  /** An engine did not serve the model, so that the planned targets may be wrong. */
  #isOutdated = false;
  /** Targets with capacity for the first attempt. Further attempts may use any target. */
  #open: readonly Target[] | undefined;
  #excluded: ReadonlyMap<string, Exclusion> | undefined;
  #firstTokenMs = Number.NaN;

  constructor(parts: LifecycleParts<Target>) {
    const { clock, knowledge, planner, request, retries, carrier, onPlanned } = parts;
    this.#parts = parts;
    this.retries = retries;
    if (!planner) return;
    const yields = (): boolean => this.#yields;
    this.#pair = new PairRun({ clock, knowledge, planner, request, retries, carrier, yields, onDecided: onPlanned });
  }

  /** Selection of the present or the last attempt. */
  get selection(): Selection<Target> | undefined {
    return this.#current?.dispatch.selection;
  }

  /** The engine chosen to compute the prompt; undefined if the engine that answers computes it. */
  get prefill(): Selection<Target> | undefined {
    return this.#pair?.prefill;
  }

  get #yields(): boolean {
    return this.#ticket?.yields ?? false;
  }

  /** Milliseconds in the queue. */
  get queuedMs(): number {
    return this.#ticket?.waitedMs ?? 0;
  }

  /** The request is complete. It goes to an engine at once, or when its turn comes. */
  enter(): void {
    const { queue, carrier, request } = this.#parts;
    const { promptTokens, expectedOutputTokens } = request.features;
    // Other requests cost engines next to nothing.
    if (queue || expectedOutputTokens > 0) request.pool.work?.demand.arrived(promptTokens);
    if (!queue) {
      carrier.admitted();
      return;
    }
    const ticket = queue.admission.enter(queue.request, this);
    this.#ticket ??= ticket;
  }

  /** See `AdmissionListener`, as for the next four. */
  targets(): readonly Target[] {
    return this.#parts.carrier.targets();
  }

  uncachedTokens(): number | undefined {
    return this.#parts.carrier.uncachedTokens();
  }

  fitsInMemory(): boolean {
    return this.#parts.queue?.cold?.fitsInMemory(this.targets()) ?? true;
  }

  admitted(open: readonly Target[], ticket: AdmissionTicket): void {
    this.#ticket = ticket;
    this.#isAdmitted = true;
    this.#open = this.#parts.queue?.cold?.among(open) ?? open;
    this.#excluded = ticket.excluded;
    if (this.#open.length < open.length) {
      const isOpen = new Set(this.#open);
      const cold = open.filter((target) => !isOpen.has(target));
      this.#excluded = new Map([...ticket.excluded, ...cold.map(({ key }) => [key, "cache_memory"] as const)]);
    }
    this.#parts.carrier.admitted();
  }

  refused(error: EspalierError): void {
    this.#parts.carrier.shed(error);
  }

  /**
   * Chooses and charges the target of the next attempt.
   *
   * @returns undefined if no target is left; `later` if the carrier's `resume` will be called
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
    const dispatch = new Dispatch(knowledge, request, selection, { isPrefilled, yields: this.#yields });
    this.#current = { dispatch, leg: step?.leg ?? "whole" };
    this.#ticket?.dispatched(Math.max(1, promptTokens - selection.matchedTokens));
    return this.#current;
  }

  /** The attempt was sent. */
  started(): void {
    this.attempts++;
    this.#pair?.started();
  }

  /** The target cannot be asked after all. Another one is chosen, as if this one had never been. */
  skipped(): void {
    const dispatch = this.#current?.dispatch;
    if (!dispatch) return;
    this.#markTried(dispatch.target.key);
    dispatch.release();
    dispatch.withdraw();
  }

  /** @param isBegun whether the client has got a byte of the answer */
  failed(kind: FailureKind, isBegun: boolean): void {
    this.#pair?.failed(kind);
    const dispatch = this.#current?.dispatch;
    if (!dispatch) return;
    if (kind === "unknown_model") this.#isOutdated = true;
    if (kind !== "declined" && kind !== "withdrawn") this.#markTried(dispatch.target.key);
    dispatch.release();
    if (!isBegun) dispatch.withdraw();
  }

  /** Examines the beginning of an answer; see `PairRun.judge`. */
  judge(status: number, head: Buffer, ended: boolean): "pass" | "decline" | "more" {
    return this.#pair?.judge(status, head, ended) ?? "pass";
  }

  /** The answer begins. */
  answering(status: number): void {
    this.#pair?.answering(status);
    if (status >= 400) this.#current?.dispatch.withdraw();
  }

  /** @param isStream whether the answer is streamed */
  firstToken(isStream: boolean): void {
    this.#firstTokenMs = this.#parts.clock.nowMs();
    this.#current?.dispatch.firstToken(isStream);
    this.#pair?.firstByte();
    this.#parts.queue?.admission.capacityFreed();
  }

  /** This many more tokens of the answer arrived. */
  progress(tokens: number): void {
    this.#current?.dispatch.progress(tokens);
  }

  /** The client left, or the router stops, while the request waited for its turn. */
  leave(): void {
    this.#ticket?.leave();
  }

  /** The request is over. */
  finish({ isCompleted, status, isStream, cachedTokens, outputTokens, resumedTokens = 0 }: AnswerEnd): void {
    const dispatch = this.#current?.dispatch;
    dispatch?.release();
    if (isCompleted && isStream) dispatch?.streamed(Math.max(0, outputTokens - resumedTokens));
    if (isCompleted && outputTokens > 0) this.#parts.request.pool.work?.demand.answered(outputTokens);
    if (!isCompleted && Number.isNaN(this.#firstTokenMs)) dispatch?.withdraw();
    // Cached tokens from a transfer do not show what this engine's cache had.
    dispatch?.answered(isCompleted && !this.prefill ? cachedTokens : undefined);
    this.#pair?.finish({
      isAnswered: isCompleted && status < 400,
      selection: this.selection,
      outputTokens,
      writingMs: isStream ? this.#parts.clock.nowMs() - this.#firstTokenMs : 0,
    });
    if (!this.#isAdmitted) return;
    this.#ticket?.ended(outputTokens);
    this.#parts.queue?.admission.capacityFreed();
  }

  get #tried(): ReadonlySet<string> {
    return this.#failed ?? noneTried;
  }

  #markTried(key: string): void {
    this.#failed ??= new Set();
    this.#failed.add(key);
  }

  #chooseAlone(): Selection<Target> | undefined {
    const { planner, request, carrier } = this.#parts;
    const { pool, onlyEngine } = request;
    const tried = this.#tried;
    // A request that was planned without any engine has waited for the first one.
    const planned = request.targets.length > 0 && !this.#isOutdated ? request.targets : carrier.targets();
    const targets = (tried.size === 0 ? this.#open : undefined) ?? planned;
    const accepts = planner?.alonePredicate(pool, targets, tried) ?? servesAlone;
    return carrier.select(targets, {
      tried,
      onlyEngine,
      accepts,
      excluded: targets === this.#open ? this.#excluded : undefined,
    });
  }
}
