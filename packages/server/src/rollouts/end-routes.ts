import { EspalierError } from "@espalier/core";
import type { Fleet } from "@espalier/engines";
import type { SessionBindings } from "@espalier/routing";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { readObject } from "../data-plane/read-body.ts";
import type { Programs } from "../programs/programs.ts";

interface EndRoutesOptions {
  readonly sessions: Pick<SessionBindings, "endSession">;
  readonly programs: Pick<Programs, "endSession">;
  readonly fleet: Pick<Fleet, "models">;
}

/** The ends of sessions and programs, as SkyRL and prime-rl report them. An unknown one has ended as well. */
export function registerEnds(app: FastifyInstance, { sessions, programs, fleet }: EndRoutesOptions): void {
  const end = (request: FastifyRequest, name: string): string => {
    const { [name]: queried } = request.query as Readonly<Record<string, unknown>>;
    const key = queried ?? readObject(request.body)[name];
    if (typeof key !== "string" || key === "") {
      throw new EspalierError("missing_field", `\`${name}\` is missing.`, { param: name });
    }
    sessions.endSession(
      key,
      fleet.models().map(({ id }) => id),
    );
    programs.endSession(key);
    return key;
  };
  app.post("/finish_session", async (request) => ({ status: "ok", session_id: end(request, "session_id") }));
  app.post("/programs/release", async (request) => ({ program_id: end(request, "program_id"), released: true }));
}
