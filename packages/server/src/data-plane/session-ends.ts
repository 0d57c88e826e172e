import { EspalierError } from "@espalier/core";
import { sessionScope } from "@espalier/routing";
import type { FastifyInstance, FastifyRequest } from "fastify";
import type { RouterContext } from "../router-context.ts";
import { tenantOf } from "../routing/service-class.ts";
import { readObject } from "./read-body.ts";

/**
 * Registers the ends of sessions as clients report them: those of their own tenant, without a cache salt. A session that
 * is not known has ended as well.
 *
 * @param isForRollouts whether ThunderAgent's path is registered elsewhere
 */
export function registerSessionEnds(app: FastifyInstance, context: RouterContext, isForRollouts: boolean): void {
  const end = (request: FastifyRequest, key: string): void => {
    const within = { scope: sessionScope(tenantOf(context, request), undefined) };
    context.sessions.endSession(
      key,
      context.fleet.models().map(({ id }) => id),
      within,
    );
    context.programs.endSession(key, within);
  };
  app.delete<{ Params: { "*": string } }>("/v1/sessions/*", async (request) => {
    const id = request.params["*"];
    end(request, id);
    return { id, object: "session", deleted: true };
  });
  if (isForRollouts) return;
  app.post("/programs/release", async (request) => {
    const { program_id: id } = readObject(request.body);
    if (typeof id !== "string" || id === "") {
      throw new EspalierError("missing_field", "`program_id` is missing.", { param: "program_id" });
    }
    end(request, id);
    return { program_id: id, released: true };
  });
}
