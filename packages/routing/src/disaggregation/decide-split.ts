import type { RequestView } from "@espalier/api";
import type { ChosenSignals } from "./pair-policies.ts";
import type { TransferCost } from "./transfer-cost.ts";
import type { TransferProtocol } from "./transfer-protocols.ts";

/** The alternatives for one request. `decideSplit` evaluates them in this order, and only as far as it needs them. */
export interface SplitChoices<Whole extends { readonly matchedTokens: number }, Pair extends object, Lack> {
  readonly promptTokens: number;
  /** Whether some engine could serve the request alone. */
  readonly canServeAlone: boolean;
  /** Chooses that engine. Afterwards `seenAlone` has its signals. */
  whole(): Whole | undefined;
  /**
   * Chooses a pair, or says what is missing for one. Afterwards `seenPrefill` has the signals of its prefill engine.
   */
  pair(): Pair | Lack;
  readonly seenAlone: ChosenSignals;
  readonly seenPrefill: ChosenSignals;
}

/** Two engines, or one (undefined if it is still to be chosen). */
export type SplitDecision<Whole, Pair, Lack> =
  | {
      readonly pair: Pair;
      readonly reason: "threshold" | "required";
      /** Uncached tokens from which two engines are better. */
      readonly thresholdTokens: number;
    }
  | {
      readonly pair: undefined;
      readonly whole: Whole | undefined;
      readonly reason: "below_threshold" | Lack;
      /** Undefined if it was not computed. */
      readonly thresholdTokens: number | undefined;
    };

/** Decides whether one engine or two serve a request. */
export function decideSplit<Whole extends { readonly matchedTokens: number }, Pair extends object, Lack extends string>(
  choices: SplitChoices<Whole, Pair, Lack>,
  cost: Pick<TransferCost, "setupMs" | "msPerToken">,
  options: SplitThresholdOptions,
): SplitDecision<Whole, Pair, Lack> {
  const { promptTokens, canServeAlone, seenAlone, seenPrefill } = choices;
  const lowest = options.thresholdTokens ?? options.minTokens;
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

/** Signals of the engine that could serve a request alone, compared with the prefill engine of a pair. */
export interface SplitSituation {
  /**
   * Answers that the prefill would stall at the engine that would serve alone, minus those it would stall at the
   * prefill engine.
   */
  readonly answersRunning: number;
  /** Time of that engine to compute a prompt token. */
  readonly prefillMsPerToken: number;
  /** Additional time for every earlier token that it attends to; 0 if unknown. */
  readonly prefillMsPerTokenPair: number;
  /** Queued prefill at that engine minus queued prefill at the prefill engine. */
  readonly waitSavedMs: number;
}

export interface SplitThresholdOptions {
  /** Overrides the computed threshold. */
  readonly thresholdTokens: number | undefined;
  readonly minTokens: number;
  readonly maxTokens: number;
}

/**
 * The number of uncached prompt tokens from which two engines are better than one, by the milliseconds that requests
 * wait. Computing u tokens takes w = b u + c u^2 / 2. A split saves w for each of the n answers that would stall at the
 * one engine and not at the other, plus the difference q of the two queues. It costs the transfer, s + t u. So it pays
 * from the root of n w - t u = s - q. The result is clamped to the bounds.
 *
 * @returns tokens
 */
export function splitThreshold(
  { answersRunning, prefillMsPerToken, prefillMsPerTokenPair, waitSavedMs }: SplitSituation,
  cost: Pick<TransferCost, "setupMs" | "msPerToken">,
  { thresholdTokens, minTokens, maxTokens }: SplitThresholdOptions,
): number {
  if (thresholdTokens !== undefined) return thresholdTokens;
  const perToken = prefillMsPerToken * answersRunning - cost.msPerToken;
  const perSquare = (prefillMsPerTokenPair * answersRunning) / 2;
  const startingLoss = cost.setupMs - waitSavedMs;
  const gainAt = (tokens: number): number => tokens * (perToken + perSquare * tokens) - startingLoss;
  if (gainAt(minTokens) >= 0) return minTokens;
  // Above the lower bound the root is always the larger one: at the bound the gain is negative.
  const root =
    perSquare > 0
      ? (Math.sqrt(Math.max(0, perToken ** 2 + 4 * perSquare * startingLoss)) - perToken) / (2 * perSquare)
      : perToken > 0
        ? startingLoss / perToken
        : maxTokens;
  return Math.min(maxTokens, Math.max(minTokens, Math.ceil(root)));
}

/** Fields with which a client, or a router in front of this one, splits a request itself. */
const ownKeys = [
  "kv_transfer_params",
  "disaggregated_params",
  "cache_hit_threshold",
  "bootstrap_host",
  "bootstrap_port",
  "bootstrap_room",
] as const;

/** Fields whose effect on prefill a second engine could not see, or that ask for several answers. */
const wholeKeys = ["echo", "prompt_logprobs", "prompt_embeds", "best_of", "use_beam_search"] as const;

/**
 * Whether a protocol can split a request between two engines: it has one prompt and one answer of more than one token.
 */
export function isSplittable(
  { endpoint, body, choices, maxOutputTokens }: Pick<RequestView, "endpoint" | "body" | "choices" | "maxOutputTokens">,
  protocol: TransferProtocol,
): boolean {
  if (!protocol.endpoints.has(endpoint.id) || choices > 1 || maxOutputTokens === 0 || maxOutputTokens === 1)
    return false;
  const { fields } = body;
  const prompt = fields.prompt ?? fields.text ?? fields.input_ids;
  if (Array.isArray(prompt) && typeof prompt[0] !== "number") return false;
  if (ownKeys.some((key) => fields[key] !== undefined)) return false;
  return wholeKeys.every((key) => !fields[key]);
}
