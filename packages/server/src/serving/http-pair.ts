import type { ResendGuard } from "@espalier/engines";
import { rankNumber, type Target } from "@espalier/engines";
import type { ChosenPair, Dispatch, Leg, LegEdits, LegEngine, PairLegs, PrefillOutcome } from "@espalier/routing";
import { adapterFields } from "../adapters/adapter-loader.ts";
import type { PlannedRequest } from "../request/planned-request.ts";
import type { RouterContext } from "../router-context.ts";
import { pullEdits } from "./engine-request.ts";
import { PrefillLeg } from "./prefill-leg.ts";

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
