import type { LoadTicket } from "@espalier/workers";
import type { Placement, PrefixKnowledge } from "../prefix/prefix-knowledge.ts";
import type { RoutingTarget } from "../routing-target.ts";
import type { RoutedRequest, Selection } from "../select-target.ts";

/** How much of a request one target does. */
export interface DispatchShare {
  /** Whether another engine computes the prompt for this one. */
  readonly isPrefilled?: boolean;
  /** Tokens of the answer; what the request expects unless given. */
  readonly expectedOutputTokens?: number;
}

/**
 * One prompt at one target: what it is charged there from the decision on, what is guessed of the target's cache, and
 * what is learned from how it goes. Every call is safe to repeat.
 */
export class Dispatch<Target extends RoutingTarget> {
  readonly selection: Selection<Target>;
  /** Milliseconds that the target is expected to compute on the prompt; 0 when nothing is known. */
  readonly workMs: number;
  readonly #ticket: LoadTicket;
  readonly #placement: Placement | undefined;
  /** Undefined where nothing is to be learned of the time that the prompt takes. */
  #work: Selection<Target>["work"];
  #isWithdrawn = false;
  #hasFirstToken = false;
  #hasEnded = false;

  /** Charges the target at once, so that the next decision sees it; siblings of a burst find the placement. */
  constructor(
    knowledge: Pick<PrefixKnowledge, "place">,
    { features, prompt }: RoutedRequest,
    selection: Selection<Target>,
    { isPrefilled = false, expectedOutputTokens = features.expectedOutputTokens }: DispatchShare = {},
  ) {
    const { target, matchedTokens, work, activeBlocks } = selection;
    const uncachedTokens = isPrefilled ? 0 : features.promptTokens - matchedTokens;
    this.selection = selection;
    this.#work = uncachedTokens > 0 ? work : undefined;
    // Before the load is told.
    this.workMs = this.#work?.sent() ?? 0;
    this.#ticket = target.load.begin({
      promptTokens: features.promptTokens,
      uncachedTokens: Math.max(1, uncachedTokens),
      expectedOutputTokens,
      workMs: this.workMs,
      activeBlocks,
    });
    this.#placement = prompt && knowledge.place(target, prompt, matchedTokens, selection);
  }

  get target(): Target {
    return this.selection.target;
  }

  /** Time passes that has nothing to do with the prompt: it is not to be learned from. */
  delayed(): void {
    this.#work = undefined;
  }

  /**
   * The prompt is computed.
   *
   * @param isPrompt whether that is told when it is so, and not later, with the whole of the answer
   */
  firstToken(isPrompt: boolean): void {
    if (this.#hasFirstToken || this.#hasEnded) return;
    this.#hasFirstToken = true;
    if (isPrompt) this.#work?.firstToken();
    this.#ticket.firstToken();
    if (!this.#isWithdrawn) this.#placement?.computed();
  }

  /** So many more tokens of the answer. */
  progress(tokens: number): void {
    this.#ticket.progress(tokens);
  }

  /** The target refused or failed before the prompt was computed, or nobody waits for it any more. */
  withdraw(): void {
    if (this.#isWithdrawn) return;
    this.#isWithdrawn = true;
    this.#placement?.withdraw();
  }

  /** Nothing of it runs at the target any more. */
  release(): void {
    this.#hasEnded = true;
    this.#ticket.end();
  }

  /** The whole answer was streamed in so many tokens. */
  streamed(outputTokens: number): void {
    this.#work?.ended(outputTokens);
  }

  /** @param cachedTokens what the engine says it had found in its cache; undefined when it does not, or did not answer */
  answered(cachedTokens: number | undefined): void {
    this.#placement?.answered(this.#isWithdrawn ? undefined : cachedTokens);
  }
}
