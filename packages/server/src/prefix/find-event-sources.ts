import type { HttpClient, KvEventsSpec } from "@espalier/common";
import {
  type EventSource,
  endpointsOfRank,
  type FeedEndpoints,
  readSglangEventSources,
  readVllmEventSources,
} from "@espalier/kv-events";

const timeoutMs = 2_000;
const maxBytes = 1_048_576;

/**
 * Asks an engine where it publishes its KV events: vLLM at `/kv_event_sources` (0.32), SGLang at `/server_info` (0.5.23).
 *
 * @param url address of the engine
 * @returns none when it publishes none or does not say; undefined when it did not answer, or with nothing but an error
 *   of its own, so that it should be asked again
 */
export async function findEventSources(http: HttpClient, url: string): Promise<readonly EventSource[] | undefined> {
  const host = hostOf(url);
  let hasFailed = false;
  for (const [path, read] of [
    ["/kv_event_sources", readVllmEventSources],
    ["/server_info", readSglangEventSources],
  ] as const) {
    const answer = await ask(http, url + path);
    if (answer === undefined) return undefined;
    const sources = read(answer.json, host);
    if (sources.length > 0) return sources;
    hasFailed ||= answer.status >= 500;
  }
  return hasFailed ? undefined : [];
}

/** Where a rank publishes by the engine's entry in the configuration. */
export function sourceBySpec(
  { endpoint, replayEndpoint, topic }: KvEventsSpec,
  rank: number,
): FeedEndpoints | undefined {
  const host = hostOf(endpoint);
  const found = endpointsOfRank({ endpoint, replayEndpoint, topic }, { host, rank });
  // The entry says where to dial, whatever the engine's own configuration looks like.
  return found && { ...found, mode: "connect" };
}

/** Without the brackets of an IPv6 address. */
const hostOf = (url: string): string => new URL(url).hostname.replace(/^\[|\]$/g, "");

interface Answer {
  readonly status: number;
  /** Undefined when it is none, or not of status 200. */
  readonly json: unknown;
}

/** @returns undefined when there was no answer at all */
async function ask(http: HttpClient, url: string): Promise<Answer | undefined> {
  try {
    const { status, body } = await http({ url, timeoutMs, maxBytes });
    return { status, json: status === 200 ? parsed(body) : undefined };
  } catch {
    return undefined;
  }
}

function parsed(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
}
