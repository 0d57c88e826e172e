import { hostInUrl, isJsonObject } from "@espalier/core";
import type { FeedEndpoints } from "./kv-feed.ts";

/** Most ranks read of one engine. */
const maxRanks = 1_024;
/** Longest text of an engine's description, in UTF-16 units. */
const maxTextLength = 1_024;

/** Where one rank of an engine publishes its KV events. */
export interface EventSource extends FeedEndpoints {
  readonly rank: number;
  /** Tokens per block; undefined when the engine does not say. */
  readonly blockSize: number | undefined;
}

/**
 * Reads the answer of vLLM's `GET /kv_event_sources` (0.32): an object from rank to the publisher's configuration,
 * whose ports already include the rank.
 *
 * @param answer the parsed JSON, of any shape
 * @param host name or address of the engine, without brackets
 * @returns the ranks with usable endpoints, ascending; none when the answer is something else
 */
export function readVllmEventSources(answer: unknown, host: string): EventSource[] {
  const sources: EventSource[] = [];
  for (const [key, value] of Object.entries(asRecord(answer)).slice(0, maxRanks)) {
    const rank = /^\d{1,6}$/.test(key) ? Number(key) : undefined;
    const config = asRecord(value);
    if (rank === undefined || config.enable_kv_cache_events === false || !isZmq(config.publisher)) continue;
    const endpoints = endpointsOfRank(
      { endpoint: text(config.endpoint), replayEndpoint: text(config.replay_endpoint), topic: text(config.topic) },
      { host, rank: 0 },
    );
    if (endpoints) sources.push({ rank, blockSize: undefined, ...endpoints });
  }
  return sources.sort((a, b) => a.rank - b.rank);
}

/**
 * Reads `kv_events` of SGLang's `GET /server_info` (0.5.23): base ports, to which each rank is added, and the number of
 * ranks.
 *
 * @param answer the parsed JSON, of any shape
 * @param host name or address of the engine, without brackets
 * @returns one source per rank; none when the answer is something else
 */
export function readSglangEventSources(answer: unknown, host: string): EventSource[] {
  const config = asRecord(asRecord(answer).kv_events);
  const port = wholeNumber(config.endpoint_port_base, 65_535);
  if (port === undefined || !isZmq(config.publisher)) return [];
  const replayPort = wholeNumber(config.replay_endpoint_port_base, 65_535);
  const publisherHost = text(config.endpoint_host) ?? "*";
  const written = {
    endpoint: `tcp://${hostInUrl(publisherHost)}:${port}`,
    replayEndpoint: replayPort === undefined ? undefined : `tcp://*:${replayPort}`,
    topic: text(config.topic),
  };
  const blockSize = wholeNumber(config.block_size, 65_536);
  const sources: EventSource[] = [];
  for (let rank = 0; rank < (wholeNumber(config.dp_size, maxRanks) ?? 1); rank++) {
    const endpoints = endpointsOfRank(written, { host, rank });
    if (endpoints) sources.push({ rank, blockSize, ...endpoints });
  }
  return sources;
}

/** Endpoints as written in an engine's configuration. */
export interface WrittenEndpoints {
  readonly endpoint: string | undefined;
  readonly replayEndpoint: string | undefined;
  readonly topic: string | undefined;
}

/**
 * The endpoints that a reader uses for those in an engine's configuration. Adds the rank to ports, as vLLM and SGLang
 * do. An engine binds an endpoint that has a `*` or `::` or is not TCP; it dials any other, so the reader binds.
 *
 * @param target `host`: name or address of the engine, without brackets
 * @returns undefined when the endpoint cannot be used from here: absent, malformed, or inside the engine's process
 */
export function endpointsOfRank(
  { endpoint, replayEndpoint, topic }: WrittenEndpoints,
  { host, rank }: { readonly host: string; readonly rank: number },
): FeedEndpoints | undefined {
  const found = endpoint === undefined ? undefined : resolve(endpoint, host, rank);
  if (!found) return undefined;
  // The engine binds the replay socket, whatever its endpoint looks like.
  const replay = replayEndpoint === undefined ? undefined : resolve(replayEndpoint, host, rank);
  return { ...found, replayEndpoint: replay?.endpoint, topic: topic ?? "" };
}

function resolve(written: string, host: string, rank: number): Pick<FeedEndpoints, "endpoint" | "mode"> | undefined {
  if (/^ipc:\/\/[^\s]+$/.test(written)) return rank === 0 ? { endpoint: written, mode: "connect" } : undefined;
  const [, publisherHost, digits] = /^tcp:\/\/([^\s/]+):(\d{1,5})$/.exec(written) ?? [];
  const port = Number(digits) + rank;
  if (publisherHost === undefined || !(port >= 1 && port <= 65_535)) return undefined;
  if (/^(\*|::|\[::\])$/.test(publisherHost)) return { endpoint: `tcp://${hostInUrl(host)}:${port}`, mode: "connect" };
  const isListening = publisherHost.includes("*") || publisherHost.includes("::");
  return { endpoint: `tcp://${hostInUrl(publisherHost)}:${port}`, mode: isListening ? "connect" : "bind" };
}

/** Engines omit the default publisher's name. */
const isZmq = (publisher: unknown): boolean => publisher === undefined || publisher === "zmq";

function asRecord(value: unknown): Readonly<Record<string, unknown>> {
  return isJsonObject(value) ? value : {};
}

function text(value: unknown): string | undefined {
  return typeof value === "string" && value.length <= maxTextLength ? value : undefined;
}

function wholeNumber(value: unknown, max: number): number | undefined {
  return typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= max ? value : undefined;
}
