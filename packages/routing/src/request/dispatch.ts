import type { LoadTicket } from "@espalier/engines";
import type { Placement, PrefixKnowledge } from "../prefix/prefix-knowledge.ts";
import type { RunningPull } from "../pulls/kv-pull.ts";
import type { RoutingTarget } from "../routing-target.ts";
import type { RoutedRequest, Selection } from "../select-target.ts";

/** The part of a request that one target does. */
export interface DispatchShare {
  /** Whether another engine computes the prompt. */
  readonly isPrefilled?: boolean;
  /** Expected tokens of the answer; by default those that the request expects. */
  readonly expectedOutputTokens?: number;
  /** Whether the request's class yields to others. */
  readonly yields?: boolean;
}

/**
 * One prompt at one target. Charges the target from the decision on, predicts its cache, and learns from the outcome.
 * Every call is safe to repeat.
 */
export class Dispatch<Target extends RoutingTarget> {
  readonly selection: Selection<Target>;
  /** Milliseconds that the target is expected to compute on the prompt; 0 if unknown. */
  readonly workMs: number;
  readonly #knowledge: Pick<PrefixKnowledge, "reported">;
  readonly #ticket: LoadTicket;
  readonly #placement: Placement | undefined;
  /** Undefined if nothing can be learned from the time that the prompt takes. */
  #work: Selection<Target>["work"];
  readonly #pull: RunningPull<Target> | undefined;
  #isWithdrawn = false;
  #hasFirstToken = false;
  #hasEnded = false;

  /** Charges the target at once, so that the next decision sees it and other prompts of a burst find the placement. */
  constructor(
    knowledge: Pick<PrefixKnowledge, "place" | "reported">,
    { features, prompt, isStreamed }: RoutedRequest,
    selection: Selection<Target>,
    { isPrefilled = false, expectedOutputTokens = features.expectedOutputTokens, yields = false }: DispatchShare = {},
  ) {
    const { target, matchedTokens, work, activeBlocks, pull } = selection;
    const uncachedTokens = isPrefilled ? 0 : features.promptTokens - matchedTokens;
    this.selection = selection;
    this.#knowledge = knowledge;
    // First, as nothing counts this dispatch yet: what throws here would never be given back.
    this.#placement = prompt && knowledge.place(target, prompt, matchedTokens, selection);
    this.#work = uncachedTokens > 0 ? work : undefined;
    // Before the load is published.
    this.workMs = this.#work?.sent() ?? 0;
    this.#ticket = target.load.begin({
      promptTokens: features.promptTokens,
      uncachedTokens: Math.max(1, uncachedTokens),
      expectedOutputTokens,
      workMs: this.workMs,
      yields,
      // Where another engine computes the prompt, its time is not this one's.
      answer: isPrefilled ? undefined : isStreamed ? "stream" : "whole",
      activeBlocks,
    });
    this.#pull = pull && !isPrefilled ? pull.begin() : undefined;
  }

  get target(): Target {
    return this.selection.target;
  }

  /** Call when time passes that has nothing to do with the prompt, so that it is not learned from. */
  delayed(): void {
    this.#work = undefined;
  }

  /**
   * The prompt is computed.
   *
   * @param isPrompt whether this is called at the first token, and not only with the whole answer
   */
  firstToken(isPrompt: boolean): void {
    if (this.#hasFirstToken || this.#hasEnded) return;
    this.#hasFirstToken = true;
    if (isPrompt) this.#work?.firstToken();
    this.#pull?.release();
    this.#ticket.firstToken();
    if (!this.#isWithdrawn) this.#placement?.computed();
  }

  /** This many more tokens of the answer arrived. */
  progress(tokens: number): void {
    this.#ticket.progress(tokens);
  }

  /** The target refused or failed before the prompt was computed, or no client waits for it any more. */
  withdraw(): void {
    if (this.#isWithdrawn) return;
    this.#isWithdrawn = true;
    this.#placement?.withdraw();
  }

  /** The request no longer runs at the target. */
  release(): void {
    this.#hasEnded = true;
    this.#pull?.release();
    this.#ticket.end();
  }

  /** The whole answer was streamed, in this many tokens. */
  streamed(outputTokens: number): void {
    this.#work?.ended(outputTokens);
    this.#ticket.streamed(outputTokens);
  }

  /** @param cachedTokens cached tokens that the engine reports; undefined if it reports none or did not answer */
  answered(cachedTokens: number | undefined): void {
    const reported = this.#isWithdrawn ? undefined : cachedTokens;
    if (this.#placement) this.#placement.answered(reported);
    else if (reported !== undefined) this.#knowledge.reported(reported);
    if (this.#pull && this.#pull.answered(reported) !== false) this.#work?.pulled();
  }
}
