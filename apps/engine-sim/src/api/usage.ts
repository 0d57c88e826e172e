import type { CacheFlavour, RequestReport } from "@espalier/engine-model";

/** Tokens of one answer as callers are billed for them. */
interface TokenCounts {
  readonly prompt: number;
  readonly cached: number;
  readonly completion: number;
}

/** Adds up the sequences of a request: each prompt counts once, however many answers it got. */
export function countTokens(reports: readonly RequestReport[], choicesPerPrompt: number): TokenCounts {
  let prompt = 0;
  let cached = 0;
  let completion = 0;
  for (const [at, report] of reports.entries()) {
    completion += report.outputTokens;
    if (at % choicesPerPrompt !== 0) continue;
    prompt += report.promptTokens;
    cached += report.cachedTokens;
  }
  return { prompt, cached, completion };
}

/**
 * The `usage` object of the OpenAI endpoints, with the fields that vLLM 0.32 and SGLang 0.5 fill.
 *
 * @param createdCacheTokens prompt tokens that are in the cache since this request; vLLM tells it for chats only
 */
export function usageObject(flavour: CacheFlavour, counts: TokenCounts, createdCacheTokens: number | null) {
  const { prompt, cached, completion } = counts;
  const totals = { prompt_tokens: prompt, total_tokens: prompt + completion, completion_tokens: completion };
  if (flavour === "sglang") {
    return {
      ...totals,
      prompt_tokens_details: { cached_tokens: cached },
      reasoning_tokens: 0,
      completion_tokens_details: null,
    };
  }
  return {
    ...totals,
    prompt_tokens_details: {
      cached_tokens: cached,
      created_cache_tokens: createdCacheTokens,
      multimodal_tokens: null,
    },
    completion_tokens_details: null,
  };
}

/** Full blocks of a prompt that its request put into the cache. */
export function createdTokens({ prompt, cached }: TokenCounts, blockSize: number): number {
  return Math.max(0, prompt - (prompt % blockSize) - cached);
}
