import { cacheVerdict, type LegEdits, type LegEngine, type PairLegs, transferVerdict } from "@espalier/disaggregation";
import { type FailureKind, RequestCopies } from "@espalier/proxy";
import type { Selection } from "@espalier/routing";
import type { LoadTicket, Target } from "@espalier/workers";
import { adapterCallsOf } from "../adapters/adapter-calls.ts";
import type { PlannedRequest } from "../data-plane/planned-request.ts";
import type { RouterContext } from "../data-plane/router-context.ts";
import { type ChosenPair, chooseDecode, choosePair } from "./choose-pair.ts";
import { noteServed, type SplitEnd } from "./note-served.ts";
import { servesAlone } from "./pair-roles.ts";
import { PrefillLeg, type PrefillOutcome } from "./prefill-leg.ts";
import type { SplitReason } from "./split-metrics.ts";

/** The next attempt at an answer for the client. */
export interface SplitStep {
  readonly selection: Selection<Target>;
  /** Tells attempts at the same target apart. */
  readonly key: string;
  /** Undefined for the client's own request to one engine. */
  readonly leg: { readonly body: readonly Buffer[]; readonly headers: readonly string[] } | undefined;
}

/** Pairs that are tried for a request that no engine can serve alone. */
const maxPairs = 3;
/** What a prefill engine answers besides one token: where the blocks of the longest prompts are. */
const maxAnswerBytes = 1_048_576;

type Stage = "undecided" | "probing" | "decoding" | "alone";

/** One request that may be served by two engines: who is asked next, and when the other engine must stop. */
export class SplitRun {
  readonly #context: RouterContext;
  readonly #plan: PlannedRequest;
  readonly #copies: RequestCopies;
  readonly #triedPrefill = new Set<string>();
  #tried: ReadonlySet<string> = new Set();
  #stage: Stage = "undecided";
  #reason: SplitReason = "unsupported";
  #pairs = 0;
  #steps = 0;
  #pair: ChosenPair | undefined;
  #legs: PairLegs | undefined;
  #edits: LegEdits | undefined;
  #leg: PrefillLeg | undefined;
  /** Keeps the decode engine's place while the prompt is computed elsewhere. */
  #reservation: LoadTicket | undefined;
  #lastFailure: FailureKind | undefined;
  #startedMs = Number.NaN;
  #prefillDoneMs = Number.NaN;
  #status = 0;
  #hasBegun = false;
  /** Whether the decode engine said that caches hold too little. */
  #isShort = false;
  #isOver = false;

  /** @param copies of the client's request */
  constructor(context: RouterContext, plan: PlannedRequest, copies = new RequestCopies()) {
    this.#context = context;
    this.#plan = plan;
    this.#copies = copies;
  }

  /** Who computed the prompt; undefined for an engine that answers alone. */
  get prefillWorker(): string | undefined {
    return this.#stage === "decoding" ? this.#pair?.prefill.target.engine.id : undefined;
  }

  /**
   * @param tried targets that have failed the request
   * @returns undefined when one engine is to be chosen, as for any request
   */
  next(tried: ReadonlySet<string>): SplitStep | undefined | Promise<SplitStep | undefined> {
    this.#tried = tried;
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

  /** The attempt goes out. @param withdraw ends it before a byte of its answer */
  started(withdraw: () => void): void {
    this.#startedMs = this.#context.clock.nowMs();
    if (this.#stage !== "decoding" || this.#pair?.protocol.order !== "concurrent" || this.#leg) return;
    const leg = this.#beginPrefill(0);
    leg?.outcome.then((outcome) => {
      if (this.#leg !== leg || this.#hasBegun || this.#isOver) return;
      this.#notePrefill(outcome);
      if (!outcome.isDone) withdraw();
    });
  }

  failed(kind: FailureKind): void {
    this.#lastFailure = kind;
  }

  judge(status: number, head: Buffer, ended: boolean): "pass" | "decline" | "more" {
    this.#status = status;
    if (this.#stage !== "probing" && this.#stage !== "decoding") return "pass";
    const isStream = this.#plan.split?.view.stream ?? false;
    const transferred = transferVerdict(status, head, isStream, ended);
    this.#isShort = false;
    if (this.#stage === "decoding" || transferred !== "pass" || status !== 200) return transferred;
    const cached = cacheVerdict(head, isStream, ended);
    this.#isShort = cached === "decline";
    return cached;
  }

  firstByte(): void {
    this.#hasBegun = true;
    const { pair, waitedMs } = { pair: this.#pair, waitedMs: this.#transferMs() };
    if (this.#stage === "probing") {
      this.#stage = "alone";
      this.#reason = "cached";
    } else if (this.#stage === "decoding" && pair && this.#status === 200 && waitedMs >= 0) {
      const { split } = this.#context;
      split.metrics.transfer(waitedMs / 1_000);
      const { pool, features } = this.#plan;
      split.rolesOf(pool).cost.observe(Math.max(1, features.promptTokens - pair.decode.matchedTokens), waitedMs);
    }
  }

  /** The request is over: what still runs for it ends, unless the client has its whole answer. */
  finish(end: SplitEnd): void {
    const { isAnswered } = end;
    this.#isOver = true;
    this.#reservation?.end();
    // SGLang's prefill engine takes a caller that goes away for a request that is aborted.
    if (!isAnswered) this.#leg?.cancel();
    // One that left the router's queue before its turn was not decided on.
    if (this.#stage === "undecided") return;
    const { split } = this.#context;
    split.metrics.finished(this.#stage === "decoding" ? "disaggregated" : "aggregated", this.#reason);
    if (!isAnswered) return;
    noteServed(split, this.#plan, end);
  }

  #decide(): SplitStep | undefined | Promise<SplitStep | undefined> {
    const { trace } = this.#plan;
    const pickingMs = trace?.nowMs() ?? 0;
    const chosen = choosePair(this.#context, this.#plan, { any: this.#tried, prefill: this.#triedPrefill });
    trace?.step("pick", pickingMs, {
      "espalier.policy": this.#plan.pool.policy.name,
      "espalier.reason": chosen.reason,
      "espalier.disaggregated": chosen.protocol !== undefined,
    });
    if (!chosen.protocol) {
      this.#stage = "alone";
      // What went wrong with a pair tells more than why there is no other one.
      if (this.#pairs === 0) this.#reason = chosen.reason;
      return chosen.whole && { selection: chosen.whole, key: chosen.whole.target.key, leg: undefined };
    }
    this.#pairs++;
    this.#pair = chosen;
    this.#reason = chosen.reason;
    const { protocol, prefill } = chosen;
    if (!protocol.peerQueryUrl) return this.#begin(undefined);
    const url = protocol.peerQueryUrl(legEngine(prefill.target));
    const peerId = this.#context.split.peers.idOf(prefill.target, url);
    if (typeof peerId === "string") return this.#begin(peerId);
    return Promise.resolve(peerId).then((id) => (id === undefined ? this.#giveUpPrefill() : this.#begin(id)));
  }

  #begin(peerId: string | undefined): SplitStep | undefined | Promise<SplitStep | undefined> {
    const { pair, source } = { pair: this.#pair!, source: this.#plan.split! };
    const { promptTokens } = this.#plan.features;
    this.#legs = pair.protocol.pair({
      prefill: legEngine(pair.prefill.target),
      decode: legEngine(pair.decode.target),
      endpoint: source.view.endpoint.id,
      fields: source.view.body.fields,
      random: this.#context.random,
      peerId,
      cachedShare: Math.min(1, Math.max(0, 1 - pair.thresholdTokens / Math.max(1, promptTokens))),
    });
    switch (pair.protocol.order) {
      case "serial":
        return this.#prefillFirst();
      case "decode_first":
        this.#stage = "probing";
        return this.#step(pair.decode, this.#legs.probe ?? noEdits);
      case "concurrent":
        this.#stage = "decoding";
        this.#edits = this.#legs.decode(undefined);
        return this.#step(pair.decode, this.#edits ?? noEdits);
    }
  }

  async #prefillFirst(): Promise<SplitStep | undefined> {
    const pair = this.#pair!;
    this.#isShort = false;
    this.#lastFailure = undefined;
    this.#reservation = pair.decode.target.load.begin({
      ...this.#plan.features,
      uncachedTokens: 1,
      activeBlocks: pair.decode.activeBlocks,
    });
    const outcome = await this.#beginPrefill(maxAnswerBytes).outcome;
    this.#reservation.end();
    if (this.#isOver) return undefined;
    this.#notePrefill(outcome);
    if (!outcome.isDone) return this.#giveUpPrefill();
    this.#edits = this.#legs?.decode(outcome.answer);
    if (!this.#edits) return this.#fallBack("nothing_transferred");
    this.#stage = "decoding";
    if (pair.decode.target.usable) return this.#step(pair.decode, this.#edits);
    return this.#decodeElsewhere();
  }

  #beginPrefill(keptBytes: number): PrefillLeg {
    const { set, headers } = this.#legs!.prefill;
    const selection = this.#pair!.prefill;
    const workMs = selection.work?.expectedMs ?? 0;
    this.#prefillDoneMs = Number.NaN;
    this.#leg = new PrefillLeg(this.#context, {
      plan: this.#plan,
      selection,
      body: this.#plan.split!.edit(this.#withAdapter(selection, set), { isAnswer: false, workMs }),
      headers,
      keptBytes,
      copies: this.#copies,
    });
    return this.#leg;
  }

  #notePrefill(outcome: PrefillOutcome): void {
    const { split } = this.#context;
    if (outcome.isDone) {
      this.#prefillDoneMs = outcome.doneMs;
      return;
    }
    const { target } = this.#pair!.prefill;
    this.#triedPrefill.add(target.key);
    split.peers.forget(target.engine.id);
  }

  #giveUpPrefill(): SplitStep | undefined | Promise<SplitStep | undefined> {
    this.#triedPrefill.add(this.#pair!.prefill.target.key);
    return this.#isOver ? undefined : this.#fallBack("prefill_failed");
  }

  /** The decode engine has failed before a byte, or was given up because the prefill engine has. */
  #decodeElsewhere(): SplitStep | undefined | Promise<SplitStep | undefined> {
    const { protocol, prefill } = this.#pair!;
    if (protocol.order === "concurrent") this.#leg?.cancel();
    if (this.#lastFailure === "declined") return this.#fallBack("transfer_failed");
    if (this.#lastFailure === "withdrawn") return this.#fallBack("prefill_failed");
    const other = protocol.isPortable && this.#edits && chooseDecode(this.#context, this.#plan, this.#tried, protocol);
    if (!other || other.target.engine === prefill.target.engine) return this.#fallBack("decode_failed");
    return this.#step(other, this.#edits ?? noEdits);
  }

  /** One engine, or another pair where none can do it alone. */
  #fallBack(reason: SplitReason): SplitStep | undefined | Promise<SplitStep | undefined> {
    this.#stage = "alone";
    this.#leg = undefined;
    this.#reason = reason;
    const { targets } = this.#plan;
    if (targets.some((target) => target.usable && servesAlone(target) && !this.#tried.has(target.key)))
      return undefined;
    return this.#pairs < maxPairs && !this.#copies.isDangerous ? this.#decide() : undefined;
  }

  #step(selection: Selection<Target>, { set, headers }: LegEdits): SplitStep {
    // What another engine computes is not computed here.
    const body = this.#plan.split!.edit(this.#withAdapter(selection, set), { isAnswer: true, workMs: 0 });
    return { selection, key: `${selection.target.key} leg ${++this.#steps}`, leg: { body, headers } };
  }

  /** What an engine has to be told of the LoRA adapter besides what the protocol sets. */
  #withAdapter({ target }: Selection<Target>, set: LegEdits["set"]): LegEdits["set"] {
    const { adapter } = this.#plan.features;
    return adapter === undefined ? set : { ...set, ...adapterCallsOf(target.engine).fields(adapter) };
  }

  /** From the later of the prefill's end and the dispatch of the decode leg; NaN while the prefill has not ended. */
  #transferMs(): number {
    return this.#context.clock.nowMs() - Math.max(this.#prefillDoneMs, this.#startedMs);
  }
}

const noEdits: LegEdits = { set: {}, headers: [] };

function legEngine({ engine, rank }: Target): LegEngine {
  const transfer = engine.kvTransfer;
  if (!transfer) throw new TypeError(`engine ${engine.id} hands over no KV blocks`);
  return { url: engine.url, transfer, rank, rankCount: engine.targets.length };
}
