import { readAnswerHead } from "@espalier/api";
import type { Random, Span } from "@espalier/core";
import type { ResendGuard, SideCall, SideOutcome } from "@espalier/engines";
import { type Permit, rankNumber, type Target } from "@espalier/engines";
import type { ChosenPair, ChosenPull, Dispatch, Leg, PrefillOutcome } from "@espalier/routing";
import { type LegEdits, type LegEngine, type PairLegs, pullProtocols } from "@espalier/routing";
import { adapterFields } from "../adapters/adapter-loader.ts";
import type { RouterContext } from "../router-context.ts";
import type { BodyFields, PlannedRequest } from "./planned-request.ts";

/** Limit of a prefill engine's answer, which names the blocks of even the longest prompts. */
const maxAnswerBytes = 1_048_576;
/** Limit of an answer that only tells whether the leg has failed: errors are short. */
const maxErrorBytes = 4_096;

const noEdits: LegEdits = { set: {}, headers: [] };

type PairContext = Pick<RouterContext, "clock" | "random" | "proxy" | "split">;

/** Disaggregated serving of one request over HTTP: edits the bodies of both legs and runs the prefill leg. */
export class HttpPair {
  readonly #context: PairContext;
  readonly #plan: PlannedRequest;
  readonly #resends: ResendGuard;
  readonly #onDefect: (thrown: unknown) => void;
  #legs: PairLegs | undefined;
  /** Ends the prefill leg that the decode engine's sidecar runs, once the answer begins. */
  #settleSidecar: ((outcome: PrefillOutcome) => void) | undefined;
  #isAskedByDecode = false;
  #decode: LegEdits = noEdits;
  /** For the sidecar that has the prefill engine pull blocks from a third one. */
  #pullHeaders: readonly string[] = [];

  /** @param onDefect called with errors thrown asynchronously */
  constructor(context: PairContext, plan: PlannedRequest, resends: ResendGuard, onDefect: (thrown: unknown) => void) {
    this.#context = context;
    this.#plan = plan;
    this.#resends = resends;
    this.#onDefect = onDefect;
  }

  /** @param ready called with false when the protocol needs a peer id and the prefill engine does not give it */
  prepare(pair: ChosenPair<Target>, ready: (isReady: boolean) => void): void {
    const { protocol, prefill } = pair;
    if (!protocol.peerQueryUrl) {
      this.#pairUp(pair, undefined);
      ready(true);
      return;
    }
    const isKnown = (peerId: string | undefined): void => {
      if (peerId !== undefined) this.#pairUp(pair, peerId);
      ready(peerId !== undefined);
    };
    const peerId = this.#context.split.peers.idOf(prefill.target, protocol.peerQueryUrl(legEngine(prefill.target)));
    if (typeof peerId === "string") isKnown(peerId);
    else Promise.resolve(peerId).then(isKnown).catch(this.#onDefect);
  }

  /** See `PairCarrier.prefill`. The leg counts for the engine's circuit breaker like a request of its own. */
  prefill(
    dispatch: Dispatch<Target>,
    keepsAnswer: boolean,
    settled: (outcome: PrefillOutcome) => void,
  ): { cancel(): void } {
    if (this.#isAskedByDecode) {
      this.#settleSidecar = settled;
      return {
        cancel: () => {
          this.#settleSidecar = undefined;
        },
      };
    }
    const { target, selection } = dispatch;
    const { set, headers } = this.#legs?.prefill ?? noEdits;
    const { adapter } = this.#plan.features;
    if (adapter !== undefined) target.adapters.sent(adapter);
    const workMs = selection.work?.expectedMs ?? 0;
    const body = this.#plan.split?.edit(this.#withAdapter(target, set), { isAnswer: false, workMs }) ?? [];
    return new PrefillLeg(this.#context, {
      ...{ plan: this.#plan, dispatch, body, headers, resends: this.#resends },
      keptBytes: keepsAnswer ? maxAnswerBytes : maxErrorBytes,
      onDefect: this.#onDefect,
      settled: (outcome) => {
        if (!outcome.isDone) this.#context.split.peers.forget(target.engine.id);
        settled(outcome);
      },
    });
  }

  /** The first byte of the answer is there: a prefill leg that nobody reports on has ended. */
  answerBegun(): void {
    const settle = this.#settleSidecar;
    this.#settleSidecar = undefined;
    settle?.({ isDone: true });
  }

  handOver(answer: Buffer | undefined): boolean {
    const edits = this.#legs?.decode(answer);
    this.#decode = edits ?? noEdits;
    return edits !== undefined;
  }

  /** The body and extra headers of a leg's attempt. */
  of(
    leg: Exclude<Leg, "whole">,
    target: Target,
  ): { readonly body: readonly Buffer[]; readonly headers: readonly string[] } {
    const { set, headers } = leg === "probe" ? (this.#legs?.probe ?? noEdits) : this.#decode;
    // Another engine computes the prompt, so this one has no work on it.
    const body = this.#plan.split?.edit(this.#withAdapter(target, set), { isAnswer: true, workMs: 0 }) ?? [];
    return { body, headers: [...headers, ...this.#pullHeaders] };
  }

  #pairUp({ protocol, prefill, decode, thresholdTokens }: ChosenPair<Target>, peerId: string | undefined): void {
    const { view } = this.#plan.split!;
    const { promptTokens } = this.#plan.features;
    this.#isAskedByDecode = protocol.isAskedByDecode ?? false;
    this.#decode = noEdits;
    this.#pullHeaders = prefill.pull ? pullEdits(prefill.pull, this.#context.random).headers : [];
    this.#legs = protocol.pair({
      prefill: legEngine(prefill.target),
      decode: legEngine(decode.target),
      endpoint: view.endpoint.id,
      fields: view.body.fields,
      random: this.#context.random,
      peerId,
      cachedShare: Math.min(1, Math.max(0, 1 - thresholdTokens / Math.max(1, promptTokens))),
    });
  }

  /** Adds the engine's fields for a LoRA adapter to those of the protocol. */
  #withAdapter({ engine }: Target, set: LegEdits["set"]): LegEdits["set"] {
    const { features, endpointId } = this.#plan;
    return features.adapter === undefined ? set : { ...set, ...adapterFields(engine, features.adapter, endpointId) };
  }
}

function legEngine(target: Target): LegEngine {
  const { engine } = target;
  const transfer = engine.kvTransfer;
  if (!transfer) throw new TypeError(`engine ${engine.id} does not transfer KV blocks`);
  return { url: engine.url, transfer, rank: rankNumber(target), rankCount: engine.targets.length };
}

/** What a request's engine has to be told to pull blocks from another one. */
export function pullEdits({ source }: ChosenPull<Target>, random: Random): LegEdits {
  const { url, kvPull: pull } = source.engine;
  if (!pull) throw new TypeError(`engine ${source.engine.id} does not serve KV blocks`);
  return pullProtocols[pull.protocol].edits({ url, pull, rank: rankNumber(source) }, random);
}

export interface PrefillRequest {
  readonly plan: PlannedRequest;
  readonly dispatch: Dispatch<Target>;
  readonly body: readonly Buffer[];
  readonly headers: readonly string[];
  /** Most bytes kept of the answer; the rest is dropped. */
  readonly keptBytes: number;
  readonly resends: ResendGuard;
  /** Called once, unless the leg is cancelled. */
  readonly settled: (outcome: PrefillOutcome) => void;
  readonly onDefect: (thrown: unknown) => void;
}

/** The prefill leg: one engine that computes a prompt for another. */
export class PrefillLeg {
  readonly #clock: PairContext["clock"];
  readonly #settled: PrefillRequest["settled"];
  readonly #call: SideCall;
  readonly #permit: Permit | undefined;
  readonly #span: Span | undefined;
  #isCancelled = false;

  constructor({ clock, proxy }: Pick<PairContext, "clock" | "proxy">, request: PrefillRequest) {
    const { plan, dispatch, body, headers, keptBytes, resends, settled, onDefect } = request;
    const { target, selection } = dispatch;
    const { method, path, pool, trace } = plan;
    this.#clock = clock;
    this.#settled = settled;
    this.#span = trace?.clientSpan("prefill", { method, target, matchedTokens: selection.matchedTokens });
    const traced = this.#span ? ["traceparent", this.#span.traceparent] : [];
    this.#call = proxy.sendSide({
      ...{ method, path, headers: plan.headers, body, keptBytes, resends },
      upstream: { url: target.engine.url, headers: [...engineHeaders(pool, target), ...headers, ...traced] },
    });
    this.#permit = target.engine.breaker.begin();
    this.#call.outcome.then((outcome) => this.#settle(outcome)).catch(onDefect);
  }

  /** Aborts the leg, unless it has ended. */
  cancel(): void {
    this.#isCancelled = true;
    this.#call.cancel();
  }

  #settle(outcome: SideOutcome): void {
    const status = outcome.kind === "answered" ? statusOf(outcome) : 0;
    const isDone = status === 200;
    this.#endSpan(outcome, status);
    if (outcome.kind === "cancelled") this.#permit?.release();
    else if (outcome.kind === "failed") this.#fail(outcome.failure, outcome.error.code);
    else if (status >= 500) this.#permit?.failure(`status ${status}`);
    else if (status === 429) this.#permit?.release();
    else this.#permit?.success();
    const answer = isDone && outcome.kind === "answered" ? outcome.body : undefined;
    if (!this.#isCancelled) this.#settled({ isDone, answer });
  }

  #endSpan(outcome: SideOutcome, status: number): void {
    if (outcome.kind === "answered") this.#span?.set({ "http.response.status_code": outcome.status });
    const failure = outcome.kind === "failed" ? outcome.failure : undefined;
    this.#span?.end(this.#clock.nowMs(), status >= 400 ? String(status) : failure);
  }

  #fail(kind: string, code: string): void {
    // The router's own queue for the engine was full: no evidence about the engine's health.
    if (kind === "overloaded") this.#permit?.release();
    else this.#permit?.failure(code);
  }
}

/** The status of an answer: that of the error in it, if it has one. */
function statusOf({ status, body }: Extract<SideOutcome, { readonly kind: "answered" }>): number {
  const fault = status === 200 && body && body.length > 0 ? readAnswerHead(body, true) : undefined;
  return typeof fault === "object" ? fault.status : status;
}

/** Headers for an engine of a pool. The header that vLLM and SGLang know selects a rank of an engine with several. */
export function engineHeaders({ upstreamHeaders }: PlannedRequest["pool"], target: Target): readonly string[] {
  if (target.engine.targets.length === 1) return upstreamHeaders;
  return [...upstreamHeaders, "x-data-parallel-rank", String(rankNumber(target))];
}

/** SGLang reads the rank of `/generate` from the body (`GenerateReqInput` in `managers/io_struct.py`, 0.5.23). */
export function rankFields({ endpointId }: Pick<PlannedRequest, "endpointId">, target: Target): BodyFields {
  return endpointId === "generate" && target.engine.targets.length > 1
    ? { routed_dp_rank: String(rankNumber(target)) }
    : {};
}
