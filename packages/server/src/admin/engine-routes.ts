import { asEngineId, type EngineId, EspalierError, type Logger } from "@espalier/core";
import { closed, type Described, nullable, record, Type } from "@espalier/core/schema";
import { describeEngine, type EngineRecord, engineDescription, type Fleet } from "@espalier/engines";
import type { FastifyInstance } from "fastify";
import { answer, bare, described, error } from "../lifecycle/answer-schemas.ts";
import type { OperatorEngines } from "../lifecycle/operator-engines.ts";

/** An engine as `/admin/engines` has it. */
const engine = closed(
  {
    ...engineDescription.properties,
    assigned_role: nullable(Type.Enum(["prefill", "decode"]), {
      description: "The role that an engine of role `both` keeps to.",
    }),
  },
  { title: "Engine" },
);

/** An element of `engines` of the configuration; `operators` reads it. */
const newEngine = Type.Object(
  {
    url: Type.String(),
    id: Type.Optional(Type.String()),
    models: Type.Optional(Type.Array(Type.String())),
    role: Type.Optional(Type.Enum(["both", "prefill", "decode"])),
    weight: Type.Optional(Type.Number()),
    labels: Type.Optional(record(Type.String())),
  },
  {
    title: "NewEngine",
    description: "An element of `engines` of the configuration, as docs/CONFIGURATION.md describes it.",
  },
);

const drainRequest = closed({ draining: Type.Boolean() });

export type Engine = Described<typeof engine>;

export interface EngineRoutesDependencies {
  readonly fleet: Fleet;
  readonly operators: Pick<OperatorEngines, "add" | "remove">;
  readonly logger: Logger;
  /** The assigned role of an engine of role `both`; undefined while it has none. */
  readonly assignedRoleOf: (engine: EngineRecord) => "prefill" | "decode" | undefined;
}

export interface ById {
  Params: { id: string };
}

/** `/admin/engines`: lists, adds, drains and removes engines. With a mesh, changes apply to all routers. */
export function registerEngines(app: FastifyInstance, dependencies: EngineRoutesDependencies): void {
  const { fleet, operators, logger, assignedRoleOf } = dependencies;
  const describe = (engine: EngineRecord): Engine => ({
    ...describeEngine(engine),
    assigned_role: assignedRoleOf(engine) ?? null,
  });
  const engineOf = (id: string): EngineRecord => {
    const engine = fleet.engine(asEngineId(id));
    if (!engine) throw new EspalierError("engine_not_found");
    return engine;
  };
  const describeOf = (id: EngineId) => describe(engineOf(id));

  const params = Type.Object({
    id: Type.String({ description: "The engine's id, as the list has it, percent-encoded." }),
  });
  const unknown = { 404: error("There is no such engine.") };
  const operation = (operationId: string, summary: string, response: object) => ({
    ...{ operationId, summary, tags: ["engines"], response },
  });
  const list = operation("listEngines", "The engines.", { 200: described(closed({ engines: Type.Array(engine) })) });
  const add = {
    ...operation("addEngine", "Add an engine; with a mesh, at every router.", {
      201: answer("It was added.", engine),
      400: error("The body is no engine."),
    }),
    body: newEngine,
  };
  const get = { ...operation("getEngine", "One engine.", { 200: described(engine), ...unknown }), params };
  const drain = {
    ...operation("drainEngine", "Give an engine no new requests, or give it new ones again.", {
      ...{ 200: described(engine), 400: error("The body is another one."), ...unknown },
    }),
    ...{ params, body: drainRequest },
  };
  const remove = {
    ...operation("removeEngine", "Remove an engine; with a mesh, at every router. Requests that it has are not cut.", {
      ...{ 204: bare("It is gone."), ...unknown },
    }),
    params,
  };

  app.get("/admin/engines", { schema: list }, async () => ({ engines: fleet.engines.map(describe) }));
  app.get<ById>("/admin/engines/:id", { schema: get }, async ({ params }) => describe(engineOf(params.id)));
  app.post("/admin/engines", { schema: add }, async ({ body }, reply) => {
    const id = operators.add(body);
    logger.info("engine added by an operator", { engine: id });
    return reply.code(201).send(describeOf(id));
  });
  app.patch<ById>("/admin/engines/:id", { schema: drain }, async ({ params, body }) => {
    const draining = readDraining(body);
    const { id } = engineOf(params.id);
    fleet.setDraining(id, draining);
    logger.info("engine drain set by an operator", { engine: id, draining });
    return describeOf(id);
  });
  app.delete<ById>("/admin/engines/:id", { schema: remove }, async ({ params }, reply) => {
    const { id } = engineOf(params.id);
    operators.remove(id);
    logger.info("engine removed by an operator", { engine: id });
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
