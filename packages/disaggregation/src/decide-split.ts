import type { ChosenSignals } from "./chosen-signals.ts";
import { type SplitThresholdOptions, splitThreshold } from "./split-threshold.ts";
import type { TransferCost } from "./transfer-cost.ts";

/** What could be done with one request. Asked in this order, and only as far as the decision depends on it. */
export interface SplitChoices<Whole extends { readonly matchedTokens: number }, Pair extends object, Lack> {
  readonly promptTokens: number;
  /** Whether there is an engine that could serve it alone. */
  readonly canServeAlone: boolean;
  /** The engine that would. What is known of it stands in `seenAlone` afterwards. */
  whole(): Whole | undefined;
  /** The two that would, or what there is none of. What is known of the first stands in `seenPrefill` afterwards. */
  pair(): Pair | Lack;
  readonly seenAlone: ChosenSignals;
  readonly seenPrefill: ChosenSignals;
}

/** Two engines, or one: undefined when it is still to be chosen. */
export type SplitDecision<Whole, Pair, Lack> =
  | {
      readonly pair: Pair;
      readonly reason: "threshold" | "required";
      /** Uncached tokens from which on a pair was to be taken. */
      readonly thresholdTokens: number;
    }
  | {
      readonly pair: undefined;
      readonly whole: Whole | undefined;
      readonly reason: "below_threshold" | Lack;
      /** Undefined where it was not reckoned. */
      readonly thresholdTokens: number | undefined;
    };

/** Decides whether one engine or two serve a request. */
export function decideSplit<Whole extends { readonly matchedTokens: number }, Pair extends object, Lack extends string>(
  choices: SplitChoices<Whole, Pair, Lack>,
  cost: Pick<TransferCost, "setupMs" | "msPerToken">,
  options: SplitThresholdOptions,
): SplitDecision<Whole, Pair, Lack> {
  const { promptTokens, canServeAlone, seenAlone, seenPrefill } = choices;
  const lowest = options.fixedTokens ?? options.minTokens;
  if (canServeAlone && promptTokens < lowest) return alone("below_threshold", undefined);

  const whole = canServeAlone ? choices.whole() : undefined;
  const uncachedTokens = promptTokens - (whole?.matchedTokens ?? 0);
  if (whole && uncachedTokens < lowest) return alone("below_threshold", whole);

  const pair = choices.pair();
  if (typeof pair === "string") return alone(pair, whole);
  const thresholdTokens = splitThreshold(
    {
      answersRunning: seenAlone.running - seenPrefill.running,
      prefillMsPerToken: seenAlone.prefillMsPerToken,
      prefillMsPerTokenPair: seenAlone.prefillMsPerTokenPair,
      waitSavedMs: seenAlone.backlogMs - seenPrefill.backlogMs,
    },
    cost,
    options,
  );
  if (!whole) return { pair, reason: "required", thresholdTokens };
  if (uncachedTokens < thresholdTokens) return { ...alone("below_threshold", whole), thresholdTokens };
  return { pair, reason: "threshold", thresholdTokens };
}

function alone<Whole, Reason>(reason: Reason, whole: Whole | undefined) {
  return { pair: undefined, whole, reason, thresholdTokens: undefined };
}
