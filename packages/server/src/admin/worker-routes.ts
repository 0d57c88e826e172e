import { asEngineId, type EngineId, EspalierError, type Logger } from "@espalier/common";
import { describeEngine, type EngineRecord, type Fleet } from "@espalier/workers";
import type { FastifyInstance } from "fastify";
import type { OperatorEngines } from "../operator/operator-engines.ts";

export interface WorkerRoutesDependencies {
  readonly fleet: Fleet;
  readonly operators: Pick<OperatorEngines, "add" | "remove">;
  readonly logger: Logger;
  /** Which side of pairs an engine keeps to, by the balance of roles; undefined where it does not. */
  readonly dutyOf: (engine: EngineRecord) => "prefill" | "decode" | undefined;
}

interface ById {
  Params: { id: string };
}

/** `/admin/workers`: engines as they are, added, taken out for a while, and removed. With a mesh it holds at all routers. */
export function registerWorkers(app: FastifyInstance, dependencies: WorkerRoutesDependencies): void {
  const { fleet, operators, logger, dutyOf } = dependencies;
  const describe = (engine: EngineRecord) => ({ ...describeEngine(engine), duty: dutyOf(engine) ?? null });
  const engineOf = (id: string): EngineRecord => {
    const engine = fleet.engine(asEngineId(id));
    if (!engine) throw new EspalierError("worker_not_found");
    return engine;
  };
  const describeOf = (id: EngineId) => describe(engineOf(id));

  app.get("/admin/workers", async () => ({ workers: fleet.engines.map(describe) }));
  app.get<ById>("/admin/workers/:id", async ({ params }) => describe(engineOf(params.id)));
  app.post("/admin/workers", async ({ body }, reply) => {
    const id = operators.add(body);
    logger.info("worker added by an operator", { worker: id });
    return reply.code(201).send(describeOf(id));
  });
  app.patch<ById>("/admin/workers/:id", async ({ params, body }) => {
    const draining = readDraining(body);
    const { id } = engineOf(params.id);
    fleet.setDraining(id, draining);
    logger.info("worker drain set by an operator", { worker: id, draining });
    return describeOf(id);
  });
  app.delete<ById>("/admin/workers/:id", async ({ params }, reply) => {
    const { id } = engineOf(params.id);
    operators.remove(id);
    logger.info("worker removed by an operator", { worker: id });
    return reply.code(204).send();
  });
}

function readDraining(body: unknown): boolean {
  if (typeof body === "object" && body !== null && "draining" in body && typeof body.draining === "boolean") {
    return body.draining;
  }
  throw new EspalierError("invalid_type", 'The body must be {"draining": true} or {"draining": false}.', {
    param: "draining",
  });
}
