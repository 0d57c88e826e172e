import { explainingPolicy } from "../explain-selection.ts";
import type { RoutingTarget } from "../routing-target.ts";
import type { Restriction, RoutedRequest, SelectablePool, TargetSelector } from "../select-target.ts";
import type { MemoryWatch } from "./memory-watch.ts";
import type { PromptUse } from "./recent-uses.ts";

/**
 * A prompt with fewer tokens to compute at an engine evicts little. A prompt that an engine has cached for the larger
 * part does not wait either: meanwhile that part would occupy memory unused.
 */
export const coldTokens = 2_048;
/** More likely than not. */
const mostLoss = 0.5;

export interface ColdPromptParts {
  readonly watch: MemoryWatch;
  /** For decisions that are not carried out; see `explainSelection`. */
  readonly dryRunSelector: TargetSelector;
  readonly pool: SelectablePool;
  /** Prompt tokens of all routers that wait at a target. */
  readonly pendingTokens: (target: RoutingTarget) => number;
}

/** Where one prompt may go without evicting what some session is expected to use again. */
export class ColdPrompt<Target extends RoutingTarget> {
  readonly #parts: ColdPromptParts;
  readonly #request: RoutedRequest;
  readonly #restriction: Restriction<Target>;
  /** The prompt that it continues. */
  readonly #before: PromptUse | undefined;
  /** Undefined while any target will do. */
  #harmless: ReadonlySet<Target> | undefined;

  constructor(parts: ColdPromptParts, request: RoutedRequest, restriction: Restriction<Target>) {
    this.#parts = parts;
    this.#request = request;
    this.#restriction = restriction;
    this.#before = request.prompt && parts.watch.before(request.prompt);
  }

  /**
   * Whether it may go now: it is warm at the target that the policy would choose, or does no harm at that or another
   * target. True if there is no target.
   */
  fitsInMemory(targets: readonly Target[]): boolean {
    this.#harmless = undefined;
    const { promptTokens } = this.#request.features;
    if (promptTokens <= coldTokens) return true;
    const chosen = this.#choose(targets);
    if (!chosen || chosen.uncachedTokens <= Math.max(coldTokens, promptTokens / 2)) return true;
    if (this.lossAt(chosen.target, chosen.uncachedTokens) <= mostLoss) return true;
    const harmless = targets.filter((one) => this.#isCandidate(one) && this.lossAt(one, promptTokens) <= mostLoss);
    if (harmless.length === 0) return false;
    this.#harmless = new Set(harmless);
    return true;
  }

  /** Those of the targets where it may go, by the last answer of `fitsInMemory`; all if that would leave none. */
  among(targets: readonly Target[]): readonly Target[] {
    const harmless = this.#harmless;
    const left = harmless ? targets.filter((target) => harmless.has(target)) : targets;
    return left.length > 0 ? left : targets;
  }

  /** Share of what a target takes in with the prompt that evicts what is expected to be used again. */
  lossAt(target: Target, uncachedTokens: number): number {
    const { watch, pendingTokens } = this.#parts;
    const { expectedOutputTokens } = this.#request.features;
    return watch.lossShare(target, uncachedTokens + expectedOutputTokens + pendingTokens(target), this.#before);
  }

  #isCandidate(target: Target): boolean {
    const { tried, onlyEngine, accepts = () => true } = this.#restriction;
    if (!target.usable || tried.has(target.key) || !accepts(target)) return false;
    return onlyEngine === undefined || target.engine.id === onlyEngine;
  }

  #choose(targets: readonly Target[]): { readonly target: Target; readonly uncachedTokens: number } | undefined {
    const { dryRunSelector, pool } = this.#parts;
    const explaining = { ...pool, policy: explainingPolicy(pool.policy) };
    const selection = dryRunSelector.select(explaining, targets, this.#request, this.#restriction);
    if (!selection) return undefined;
    const uncachedTokens = this.#request.features.promptTokens - selection.matchedTokens;
    return { target: selection.target, uncachedTokens };
  }
}
