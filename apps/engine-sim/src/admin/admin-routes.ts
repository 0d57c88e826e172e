import type { JsonObject } from "../api/body-fields.ts";
import type { EngineContext } from "../http/engine-context.ts";
import { type Exchange, sendJson } from "../http/exchange.ts";
import { parseFault } from "./faults.ts";

/** `GET /sim/state`: everything a test may want to know. */
export function readState(context: EngineContext, exchange: Exchange): void {
  const { id, flavour, models, adapters, engine, kvEvents, live, log, faults } = context;
  sendJson(exchange, 200, {
    id,
    flavour,
    models,
    adapters: adapters.names,
    life: engine.life,
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

/** `POST /sim/faults`. Refusing for a time closes the listening socket; everything else waits for its requests. */
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

/** `POST /sim/reset`: the engine's process dies and starts again at once, on the same port. */
export async function restart(context: EngineContext, exchange: Exchange): Promise<void> {
  const { engine, kvEvents, live, log, storedResponses, adapters, transfers } = context;
  // The dead tell nobody that they want nothing any more.
  transfers?.restart();
  for (const request of [...live]) request.kill();
  // The new life has its numbers before it says anything.
  const reopened = kvEvents?.restart();
  engine.restart();
  log.clear();
  storedResponses.clear();
  adapters.reset();
  await reopened;
  sendJson(exchange, 200, { life: engine.life });
}
