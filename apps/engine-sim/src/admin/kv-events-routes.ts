import type { EventChannel } from "../events/event-channel.ts";
import { parseEventFault } from "../events/event-faults.ts";
import { ApiError } from "../http/api-error.ts";
import type { EngineContext } from "../http/engine-context.ts";
import { sendJson } from "../http/exchange.ts";
import type { Route } from "../http/routes.ts";

/** `/sim/kv-events`: where an engine's events go, and what goes wrong with them. */
export const kvEventMethods = methodsOf(({ kvEvents }) => {
  if (!kvEvents) throw new ApiError(404, "this engine publishes no KV events");
  return kvEvents;
});

/** `/sim/kv-pool`: the same of the events of the pool that is here. */
export const kvPoolMethods = methodsOf(({ transfers }) => {
  if (!transfers?.poolEvents) throw new ApiError(404, "there is no pool here that publishes KV events");
  return transfers.poolEvents;
});

function methodsOf(channelOf: (context: EngineContext) => EventChannel): Route["methods"] {
  return {
    GET: (context, exchange) => sendJson(exchange, 200, channelOf(context).describe()),
    async POST(context, exchange, body) {
      const channel = channelOf(context);
      await channel.inject(parseEventFault(body));
      sendJson(exchange, 200, channel.describe());
    },
    async DELETE(context, exchange) {
      const channel = channelOf(context);
      await channel.clearFaults();
      sendJson(exchange, 200, channel.describe());
    },
  };
}
