import { EspalierError } from "@espalier/common";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { largeBodyBytes } from "../large-bodies/large-bodies.ts";
import { answer, passOn } from "../request/answer-request.ts";
import type { PlannedRequest } from "../request/planned-request.ts";
import { resolvePool } from "./resolve-pool.ts";
import type { RouterContext } from "./router-context.ts";

/**
 * Paths that the router does not know but was told to pass on. The engine is one of the model that the header
 * `x-espalier-model` or a JSON body names, else of the only model there is.
 *
 * @throws EspalierError `config_invalid` for a path that the router serves itself, or that stands twice
 */
export function registerForwardRoutes(app: FastifyInstance, context: RouterContext): void {
  for (const path of context.live.settings.forwardPaths) {
    try {
      app.route({
        method: ["GET", "POST", "PUT", "PATCH", "DELETE"],
        // A colon would begin a parameter.
        url: path.replaceAll(":", "::"),
        config: { family: "openai", endpointId: "forwarded", anyBody: true },
        handler: (request, reply) => answer(context, request, reply, "openai", () => plan(context, request)),
      });
    } catch (error) {
      throw new EspalierError("config_invalid", `forward-paths: ${path} is served already`, { cause: error });
    }
  }
}

/** Segments that a server may resolve: the path would then lead out of what is listed. */
const dotSegment = /(?:\/|\\|%2f|%5c)(?:\.|%2e){1,2}(?:\/|\\|%2f|%5c|$)/i;

function plan(context: RouterContext, request: FastifyRequest): PlannedRequest | Promise<PlannedRequest> {
  if (dotSegment.test(request.url.split("?", 1)[0] ?? "")) throw new EspalierError("path_not_found");
  const passed = passOn(context, request);
  const planFor = (model: string | undefined): PlannedRequest => {
    const { pool, targets } = resolvePool(context, model, undefined);
    return { ...passed, endpointId: "forwarded", pool, targets, onlyEngine: undefined };
  };
  const model = readModel(context, request, passed.body[0]);
  return model instanceof Promise ? model.then(planFor) : planFor(model);
}

function readModel(
  { largeBodies }: RouterContext,
  request: FastifyRequest,
  body: Buffer | undefined,
): string | undefined | Promise<string | undefined> {
  const header = request.headers["x-espalier-model"];
  if (typeof header === "string") return header;
  if (!body || !request.headers["content-type"]?.startsWith("application/json")) return undefined;
  if (body.length > largeBodyBytes) return largeBodies.readModel(body);
  try {
    const parsed: unknown = JSON.parse(body.toString("utf8"));
    if (typeof parsed !== "object" || parsed === null || !("model" in parsed)) return undefined;
    return typeof parsed.model === "string" ? parsed.model : undefined;
  } catch {
    throw new EspalierError("invalid_json");
  }
}
