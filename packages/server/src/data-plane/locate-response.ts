import { EspalierError } from "@espalier/common";
import type { RouterContext } from "./router-context.ts";

const askTimeoutMs = 2_000;
const maxAnswerBytes = 16_777_216;
/** More engines than this are not asked at once. */
const maxAsked = 64;

/**
 * Finds the engine that holds a stored response: from memory, or, when this router did not see it made (another
 * replica did, or it was restarted since), by asking the engines.
 *
 * @param param the field that names the response, for the error; undefined when the path does
 * @returns the engine's id
 * @throws EspalierError `response_not_found`
 */
export async function locateResponse(
  context: RouterContext,
  responseId: string,
  param?: "previous_response_id",
): Promise<string> {
  const { storedResponses } = context;
  const known = storedResponses.holderOf(responseId);
  if (known !== undefined) return known;
  const found = await askEngines(context, responseId);
  if (found === undefined) {
    throw new EspalierError("response_not_found", "No engine holds this response.", param && { param });
  }
  storedResponses.remember(responseId, found);
  return found;
}

async function askEngines({ fleet, proxy, pools }: RouterContext, responseId: string): Promise<string | undefined> {
  const candidates = fleet.engines.filter((engine) => engine.state === "up").slice(0, maxAsked);
  const answers = candidates.map(async (engine) => {
    const response = await proxy.httpClient({
      url: `${engine.url}/v1/responses/${encodeURIComponent(responseId)}`,
      headers: asRecord(pools.settingsFor(engine.models?.[0]?.id ?? "*").upstreamHeaders),
      timeoutMs: askTimeoutMs,
      maxBytes: maxAnswerBytes,
    });
    if (response.status !== 200) throw new EspalierError("response_not_found");
    return engine.id;
  });
  return Promise.any(answers).catch(() => undefined);
}

function asRecord(pairs: readonly string[]): Record<string, string> {
  const record: Record<string, string> = {};
  for (let i = 0; i + 1 < pairs.length; i += 2) record[pairs[i] as string] = pairs[i + 1] as string;
  return record;
}
