/** What simulated engines have counted since they started. */
export interface EngineTotals {
  readonly requests: number;
  readonly outputTokens: number;
  /** Prompt tokens found in caches, of all prompt tokens, 0 to 1. */
  readonly cachedShare: number;
  /** The share of requests at the engine with the most. */
  readonly largestEngineShare: number;
}

/** @throws Error when an engine's metrics lack a counter */
export async function readEngineTotals(engineUrls: readonly string[]): Promise<EngineTotals> {
  const pages = await Promise.all(engineUrls.map(async (url) => (await fetch(`${url}/metrics`)).text()));
  const counted = (name: string) => pages.map((page) => sumOf(page, name));
  const sum = (name: string) => counted(name).reduce((all, each) => all + each, 0);
  const requests = counted("vllm:request_success_total");
  const all = requests.reduce((sum, each) => sum + each, 0);
  return {
    requests: all,
    outputTokens: sum("vllm:generation_tokens_total"),
    cachedShare: sum("vllm:prefix_cache_hits_total") / sum("vllm:prefix_cache_queries_total"),
    largestEngineShare: Math.max(...requests) / all,
  };
}

function sumOf(page: string, name: string): number {
  const series = [...page.matchAll(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)$`, "gm"))];
  if (series.length === 0) throw new Error(`the engine's metrics have no ${name}`);
  return series.reduce((sum, [, value]) => sum + Number(value), 0);
}
