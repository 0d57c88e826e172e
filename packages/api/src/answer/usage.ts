import { isJsonObject, type JsonObject } from "@espalier/core";

/** Tokens of one request as the engine counted them. */
export interface Usage {
  /** All tokens of the prompt, cached ones included. */
  readonly promptTokens: number;
  readonly completionTokens: number;
  /** Prompt tokens that came from the prefix cache; undefined when the engine does not report them. */
  readonly cachedTokens: number | undefined;
}

/** The numbers in one report; a stream may spread them over several. */
export interface UsageReport {
  readonly promptTokens: number | undefined;
  readonly completionTokens: number | undefined;
  readonly cachedTokens: number | undefined;
}

/**
 * The report inside a parsed event or answer: `usage` (OpenAI, Anthropic's message_delta), `message.usage` (Anthropic's
 * message_start), `response.usage` (the Responses API) or `meta_info` (SGLang's own API).
 */
export function findUsageReport(parsed: unknown): UsageReport | undefined {
  if (!isJsonObject(parsed)) return undefined;
  return (
    readUsageReport(parsed.usage) ??
    readUsageReport(member(parsed.message, "usage")) ??
    readUsageReport(member(parsed.response, "usage")) ??
    readUsageReport(parsed.meta_info)
  );
}

/** The numbers in a usage object of any dialect, or undefined when it has none. */
export function readUsageReport(usage: unknown): UsageReport | undefined {
  if (!isJsonObject(usage)) return undefined;
  const completionTokens = count(usage, "completion_tokens") ?? count(usage, "output_tokens");
  const cachedTokens =
    count(usage.prompt_tokens_details, "cached_tokens") ??
    count(usage.input_tokens_details, "cached_tokens") ??
    count(usage, "cache_read_input_tokens") ??
    count(usage, "cached_tokens");
  const promptTokens = count(usage, "prompt_tokens") ?? inputTokens(usage);
  if (promptTokens === undefined && completionTokens === undefined) return undefined;
  return { promptTokens, completionTokens, cachedTokens };
}

/** Joins the first and the last report of an answer; the last one takes precedence. */
export function joinUsage(first: UsageReport | undefined, last: UsageReport | undefined): Usage | undefined {
  const prompt = last?.promptTokens === undefined ? first : last;
  if (prompt?.promptTokens === undefined) return undefined;
  return {
    promptTokens: prompt.promptTokens,
    completionTokens: last?.completionTokens ?? first?.completionTokens ?? 0,
    cachedTokens: prompt.cachedTokens,
  };
}

/**
 * Anthropic's `input_tokens` exclude cached tokens; those of the Responses API (with its details object) include them.
 */
function inputTokens(usage: JsonObject): number | undefined {
  const uncached = count(usage, "input_tokens");
  if (uncached === undefined) return undefined;
  return uncached + (count(usage, "cache_read_input_tokens") ?? 0) + (count(usage, "cache_creation_input_tokens") ?? 0);
}

function member(value: unknown, name: string): unknown {
  return isJsonObject(value) ? value[name] : undefined;
}

function count(value: unknown, name: string): number | undefined {
  const found = member(value, name);
  return typeof found === "number" && Number.isSafeInteger(found) && found >= 0 ? found : undefined;
}
