import { type FactStore, keptDecisions } from "@espalier/routing";
import type { DescribedDecision } from "./decision-feed.ts";

/** Texts of a decision, and numbers. */
const textWidth = 8;
const numberWidth = 8;

/**
 * Keeps decisions in two arrays: numbers by value, texts by reference, since all of them are names that live anyway, of
 * engines, models and rules. So no object outlives its request for the log.
 */
export function createDecisionColumns(decisions = keptDecisions): FactStore<DescribedDecision> {
  const texts = new Array<string | null>(decisions * textWidth);
  const numbers = new Float64Array(decisions * numberWidth);
  return {
    write(entry, facts) {
      const { pull } = facts;
      const text = entry * textWidth;
      texts[text] = facts.endpoint;
      texts[text + 1] = facts.model;
      texts[text + 2] = facts.policy;
      texts[text + 3] = facts.reason;
      texts[text + 4] = facts.target;
      texts[text + 5] = facts.class;
      texts[text + 6] = facts.prefillEngine;
      texts[text + 7] = pull?.from ?? null;
      const number = entry * numberWidth;
      numbers[number] = facts.atMs;
      numbers[number + 1] = facts.promptTokens;
      numbers[number + 2] = facts.matchedTokens;
      numbers[number + 3] = facts.queuedMs;
      numbers[number + 4] = facts.attempt;
      if (!pull) return;
      numbers[number + 5] = pull.tokens;
      numbers[number + 6] = pull.ms;
      numbers[number + 7] = pull.computeMs;
    },
    read(entry) {
      const [endpoint, model, policy, reason, target, className, prefillEngine, from] = texts.slice(
        entry * textWidth,
        (entry + 1) * textWidth,
      );
      const [atMs, promptTokens, matchedTokens, queuedMs, attempt, tokens, ms, computeMs] = numbers.subarray(
        entry * numberWidth,
      );
      return {
        atMs: atMs!,
        endpoint: endpoint!,
        model: model!,
        policy: policy!,
        reason: reason!,
        target: target!,
        promptTokens: promptTokens!,
        matchedTokens: matchedTokens!,
        class: className!,
        queuedMs: queuedMs!,
        attempt: attempt!,
        prefillEngine: prefillEngine!,
        pull: from ? { from, tokens: tokens!, ms: ms!, computeMs: computeMs! } : null,
      };
    },
  };
}
