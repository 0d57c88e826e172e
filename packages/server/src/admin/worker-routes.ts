import { asEngineId, type Described, type EngineId, EspalierError, json, type Logger } from "@espalier/core";
import { describeEngine, type EngineRecord, engineDescription, type Fleet } from "@espalier/engines";
import type { FastifyInstance } from "fastify";
import type { OperatorEngines } from "../lifecycle/operator-engines.ts";

/** An engine as `/admin/workers` has it. */
export const worker = json.named(
  "Worker",
  json.object({
    ...engineDescription.properties,
    duty: json.nullable(json.oneOf(["prefill", "decode"]), "The role that an engine of role `both` keeps to."),
  }),
);

/** An element of `engines` of the configuration; `operators` reads it. */
export const newWorker = json.named(
  "NewWorker",
  json.looseObject({
    description: "An element of `engines` of the configuration, as docs/CONFIGURATION.md describes it.",
    required: { url: json.text() },
    optional: {
      id: json.text(),
      models: json.list(json.text()),
      role: json.oneOf(["both", "prefill", "decode"]),
      weight: json.number(),
      labels: json.record(json.text()),
    },
    isOpen: true,
  }),
);

export const drainRequest = json.object({ draining: json.boolean() });

export type Worker = Described<typeof worker>;

export interface WorkerRoutesDependencies {
  readonly fleet: Fleet;
  readonly operators: Pick<OperatorEngines, "add" | "remove">;
  readonly logger: Logger;
  /** The assigned role of an engine of role `both`; undefined while it has none. */
  readonly assignedRoleOf: (engine: EngineRecord) => "prefill" | "decode" | undefined;
}

export interface ById {
  Params: { id: string };
}

/** `/admin/workers`: lists, adds, drains and removes engines. With a mesh, changes apply to all routers. */
export function registerWorkers(app: FastifyInstance, dependencies: WorkerRoutesDependencies): void {
  const { fleet, operators, logger, assignedRoleOf } = dependencies;
  const describe = (engine: EngineRecord): Worker => ({
    ...describeEngine(engine),
    duty: assignedRoleOf(engine) ?? null,
  });
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
