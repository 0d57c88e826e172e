import type { JsonObject } from "@espalier/core";
import type { EventChannel } from "../event-channel.ts";
import { parseEventFault } from "../event-faults.ts";
import { parseFault } from "../faults.ts";
import { ApiError, type Exchange, sendJson } from "../http/exchange.ts";
import type { EngineContext } from "../serving/engine-context.ts";
import type { Route } from "../serving/route.ts";

/** `GET /sim/state`: statistics, active requests, faults and the request log. */
export function readState(context: EngineContext, exchange: Exchange): void {
  const { id, flavour, models, adapters, engine, kvEvents, live, log, faults } = context;
  sendJson(exchange, 200, {
    id,
    flavour,
    models,
    adapters: adapters.names,
    epoch: engine.epoch,
    weightVersion: engine.weightVersion,
    rankOffset: engine.rankOffset ?? null,
    isPaused: engine.isPaused,
    engineMs: engine.nowMs(),
    parameters: engine.parameters,
    stats: engine.stats(),
    active: Array.from(live, (request) => request.describe()),
    totals: log.totals(),
    faults: faults.list(),
    kvEvents: kvEvents?.describe() ?? null,
    requests: log.entries(),
  });
}

/** `GET /sim/transfers`: exports to and imports from other engines, and their counters. */
export function readTransfers({ transfers }: EngineContext, exchange: Exchange): void {
  if (!transfers) throw new ApiError(404, "this engine transfers no KV blocks");
  sendJson(exchange, 200, transfers.describe());
}

/** `GET /sim/p2p`: pulls from and by other engines, and their counters. */
export function readPeers({ peers }: EngineContext, exchange: Exchange): void {
  if (!peers) throw new ApiError(404, "this engine pulls from no other engines");
  sendJson(exchange, 200, peers.describe());
}

/** `POST /sim/faults`. `refuse` with a delay closes the listening socket at once; other faults hit coming requests. */
export function addFault(context: EngineContext, exchange: Exchange, body: JsonObject): void {
  const fault = parseFault(body);
  if (fault.kind === "refuse" && fault.delayMs !== undefined) {
    exchange.response.setHeader("connection", "close");
    exchange.response.on("finish", () => context.refuseFor(fault.delayMs as number));
  } else {
    context.faults.add(fault);
  }
  sendJson(exchange, 200, { faults: context.faults.list() });
}

/** `DELETE /sim/faults` */
export function clearFaults({ faults }: EngineContext, exchange: Exchange): void {
  faults.clear();
  sendJson(exchange, 200, { faults: [] });
}

/** `POST /sim/reset`: the engine crashes and restarts at once, on the same port. */
export async function restart(context: EngineContext, exchange: Exchange): Promise<void> {
  const { engine, kvEvents, live, log, storedResponses, adapters, transfers, peers } = context;
  // First, so that killed requests release nothing at other engines: a crashed process sends nothing.
  transfers?.restart();
  peers?.restart();
  for (const request of [...live]) request.kill();
  // Sequence numbers restart before the new process publishes.
  const reopened = kvEvents?.restart();
  engine.restart();
  log.clear();
  storedResponses.clear();
  adapters.reset();
  await reopened;
  sendJson(exchange, 200, { epoch: engine.epoch });
}

/** `/sim/kv-events`: addresses and faults of an engine's KV events. */
export const kvEventMethods = methodsOf(({ kvEvents }) => {
  if (!kvEvents) throw new ApiError(404, "this engine publishes no KV events");
  return kvEvents;
});

/** `/sim/kv-pool`: the same for the pool's events. */
export const kvPoolMethods = methodsOf(({ transfers }) => {
  if (!transfers?.poolEvents) throw new ApiError(404, "this engine has no pool that publishes KV events");
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
