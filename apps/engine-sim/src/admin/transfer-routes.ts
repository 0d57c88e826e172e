import { ApiError } from "../http/api-error.ts";
import type { EngineContext } from "../http/engine-context.ts";
import { type Exchange, sendJson } from "../http/exchange.ts";

/** `GET /sim/transfers`: what is held for other engines, what is fetched from them, and what became of it so far. */
export function readTransfers({ transfers }: EngineContext, exchange: Exchange): void {
  if (!transfers) throw new ApiError(404, "this engine hands no blocks to others");
  sendJson(exchange, 200, transfers.describe());
}
