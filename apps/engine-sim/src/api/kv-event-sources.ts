import type { EventChannelDescription } from "../events/event-channel.ts";
import { ApiError } from "../http/api-error.ts";
import type { EngineContext } from "../http/engine-context.ts";
import { type Exchange, sendJson } from "../http/exchange.ts";

/** Bounds of vLLM's publisher that play no part here, at their defaults. */
const vllmQueues = { hwm: 100_000, max_queue_size: 100_000 };

const anyHost = (port: number): string => `tcp://*:${port}`;

/**
 * `GET /kv_event_sources` of vLLM 0.32: the publisher's configuration by data-parallel rank, and nothing when none is on.
 * Version 0.23 and other engines have no such path.
 */
export function kvEventSources({ flavour, kvEvents }: EngineContext, exchange: Exchange): void {
  const events = kvEvents?.describe();
  if (flavour === "sglang" || (events && events.dialect !== "vllm-0.32")) throw new ApiError(404, "Not Found");
  sendJson(exchange, 200, events ? { 0: vllmConfiguration(events) } : {});
}

function vllmConfiguration({ port, replayPort, bufferSteps, topic }: EventChannelDescription) {
  return {
    enable_kv_cache_events: true,
    publisher: "zmq",
    endpoint: anyHost(port),
    replay_endpoint: replayPort === null ? null : anyHost(replayPort),
    buffer_steps: bufferSteps,
    ...vllmQueues,
    topic,
  };
}

/** What SGLang 0.5.23 says in `/server_info` about its publisher. */
export function sglangEventFields({ kvEvents, engine }: EngineContext) {
  if (!kvEvents) return { kv_events_config: null, kv_events: null };
  const { port, replayPort, bufferSteps, topic } = kvEvents.describe();
  const replayed = replayPort === null ? {} : { replay_endpoint: anyHost(replayPort), buffer_steps: bufferSteps };
  return {
    kv_events_config: JSON.stringify({ publisher: "zmq", endpoint: anyHost(port), ...replayed, topic }),
    kv_events: {
      publisher: "zmq",
      endpoint_host: "*",
      endpoint_port_base: port,
      topic,
      block_size: engine.parameters.blockSize,
      dp_size: 1,
      ...(replayPort === null ? {} : { replay_endpoint_port_base: replayPort }),
    },
  };
}
