import type { JsonObject } from "../api/body-fields.ts";
import type { EventChannel } from "../events/event-channel.ts";
import { parseEventFault } from "../events/event-faults.ts";
import { ApiError } from "../http/api-error.ts";
import type { EngineContext } from "../http/engine-context.ts";
import { type Exchange, sendJson } from "../http/exchange.ts";

function channelOf({ kvEvents }: EngineContext): EventChannel {
  if (!kvEvents) throw new ApiError(404, "this engine publishes no KV events");
  return kvEvents;
}

/** `GET /sim/kv-events`: where events go, and what goes wrong with them. */
export function readKvEvents(context: EngineContext, exchange: Exchange): void {
  sendJson(exchange, 200, channelOf(context).describe());
}

/** `POST /sim/kv-events`: something goes wrong with events. */
export async function breakKvEvents(context: EngineContext, exchange: Exchange, body: JsonObject): Promise<void> {
  const channel = channelOf(context);
  await channel.inject(parseEventFault(body));
  sendJson(exchange, 200, channel.describe());
}

/** `DELETE /sim/kv-events`: nothing goes wrong with events any more. */
export async function mendKvEvents(context: EngineContext, exchange: Exchange): Promise<void> {
  const channel = channelOf(context);
  await channel.clearFaults();
  sendJson(exchange, 200, channel.describe());
}
