import { afterEvents, type TurnResult } from "./chat-sessions.ts";

interface ChangedCacheOptions {
  /** URL of the router for the next request; called once per request. */
  readonly url: () => string;
  readonly model: string;
  /** The routers' only engine. */
  readonly engineUrl: string;
  /** Prompts of different runs share nothing. */
  readonly firstPrompt: number;
}

/** What the launched engine can hold, in tokens: 95 usable blocks of 32. */
const memoryTokens = 95 * 32;
const repeatedTokens = 6 * 32 + 8;
/** Long enough for events on an idle machine, and short enough that placements have not ended by themselves. */
const settleMs = 400;

/** Sends a prompt, then others until a part of it must have been evicted, then the prompt again. */
export async function runEvictions(options: ChangedCacheOptions, times: number): Promise<readonly TurnResult[]> {
  const results: TurnResult[] = [];
  for (let time = 0; time < times; time++) {
    const ask = (number: number, tokens: number) => complete(options, options.firstPrompt + 3 * time + number, tokens);
    results.push(await ask(0, repeatedTokens));
    // A block more than there is beside the prompt, for each of the two.
    const filling = Math.floor((memoryTokens - repeatedTokens) / 2) + 32;
    results.push(await ask(1, filling), await ask(2, filling));
    results.push(await ask(0, repeatedTokens));
  }
  return results;
}

/** Sends a prompt, empties the engine's cache, sends another one, with which vLLM says so, and the first one again. */
export async function runResets(options: ChangedCacheOptions, times: number): Promise<readonly TurnResult[]> {
  const results: TurnResult[] = [];
  for (let time = 0; time < times; time++) {
    const ask = (number: number) => complete(options, options.firstPrompt + 2 * time + number, repeatedTokens);
    results.push(await ask(0));
    const reset = await fetch(`${options.engineUrl}/reset_prefix_cache`, { method: "POST" });
    if (!reset.ok) throw new Error(`the cache was not emptied: status ${reset.status}`);
    results.push(await ask(1), await ask(0));
  }
  return results;
}

/** One completion of a prompt of token ids, once earlier events have arrived. */
async function complete({ url, model }: ChangedCacheOptions, prompt: number, tokens: number): Promise<TurnResult> {
  await afterEvents(settleMs);
  const ids = Array.from({ length: tokens }, (_, at) => 100 + ((prompt * 7_919 + at * 31) % 997));
  const response = await fetch(`${url()}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model, prompt: ids, max_tokens: 1, temperature: 0 }),
  });
  const answer = (await response.json()) as {
    readonly usage?: { readonly prompt_tokens_details?: { readonly cached_tokens?: number } | null };
  };
  if (!response.ok) throw new Error(`status ${response.status}: ${JSON.stringify(answer).slice(0, 500)}`);
  return {
    ...{ session: prompt, style: "completion", turn: 0, promptTokens: tokens },
    engine: response.headers.get("x-espalier-engine") ?? "",
    predictedTokens: Number(response.headers.get("x-espalier-cache-hit-tokens")),
    cachedTokens: answer.usage?.prompt_tokens_details?.cached_tokens ?? 0,
  };
}
