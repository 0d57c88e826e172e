import { EspalierError } from "@espalier/common";
import { parseStoredResponsePath } from "@espalier/openai";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { answer, passOn } from "../request/answer-request.ts";
import type { PlannedRequest } from "../request/planned-request.ts";
import { locateResponse } from "./locate-response.ts";
import type { RouterContext } from "./router-context.ts";

/** Reading, cancelling and deleting a stored response: each goes to the engine that holds it. */
export function registerStoredResponseRoutes(app: FastifyInstance, context: RouterContext): void {
  for (const url of ["/v1/responses/:id", "/v1/responses/:id/:action"]) {
    app.route({
      method: ["GET", "DELETE", "POST"],
      url,
      config: { family: "openai", endpointId: "stored_response" },
      handler: (request, reply) => answer(context, request, reply, "openai", () => plan(context, request)),
    });
  }
}

async function plan(context: RouterContext, request: FastifyRequest): Promise<PlannedRequest> {
  const passed = passOn(context, request);
  const path = parseStoredResponsePath(request.url);
  if (!path) throw new EspalierError("response_not_found", "The path does not name a response.");
  const onlyEngine = await locateResponse(context, path.id);
  const engine = context.fleet.engines.find((record) => record.id === onlyEngine);
  const model = engine?.models?.[0]?.id;
  if (model === undefined) throw new EspalierError("response_not_found", "The engine that held this response is gone.");
  if (request.method === "DELETE") context.storedResponses.forget(path.id);
  const pool = context.pools.settingsFor(model);
  return { ...passed, endpointId: "stored_response", pool, targets: context.fleet.pool(model), onlyEngine };
}
