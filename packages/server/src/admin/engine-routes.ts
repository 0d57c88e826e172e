import { asEngineId, type EngineId, EspalierError, type Logger } from "@espalier/core";
import { closed, type Described, nullable, record, Type } from "@espalier/core/schema";
import { describeEngine, type EngineRecord, engineDescription, engineTroubles, type Fleet } from "@espalier/engines";
import type { FastifyInstance } from "fastify";
import { answer, bare, described, error } from "../lifecycle/answer-schemas.ts";
import type { OperatorEngines } from "../lifecycle/operator-engines.ts";

/** An engine as `/admin/engines` has it. */
const engine = closed(
  {
    ...engineDescription.properties,
    assigned_role: nullable(Type.Enum(["prefill", "decode"]), {
      description: "Assigned role of an engine with role `both`.",
    }),
    trouble: nullable(Type.String(), {
      description: "Why the engine is not up, fails, is unresponsive or slow, in words; null for one that is well.",
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
    description: "Element of `engines` in the configuration (docs/CONFIGURATION.md).",
  },
);

const drainRequest = closed({
  draining: Type.Boolean(),
  move: Type.Optional(
    Type.Boolean({ description: "Also have other engines continue its streams, as far as the retry budget allows." }),
  ),
});

export type Engine = Described<typeof engine>;

export interface EngineRoutesDependencies {
  readonly fleet: Fleet;
  readonly operators: Pick<OperatorEngines, "add" | "remove">;
  /** Drains an engine and moves its streams, mesh-wide. */
  readonly moveStreams: (engineId: string) => void;
  readonly logger: Logger;
  /** The assigned role of an engine of role `both`; undefined while it has none. */
  readonly assignedRoleOf: (engine: EngineRecord) => "prefill" | "decode" | undefined;
}

export interface ById {
  Params: { id: string };
}

/** `/admin/engines`: lists, adds, drains and removes engines. With a mesh, changes apply to all routers. */
export function registerEngines(app: FastifyInstance, dependencies: EngineRoutesDependencies): void {
  const { fleet, operators, moveStreams, logger, assignedRoleOf } = dependencies;
  const describe = (engine: EngineRecord, troubles: ReadonlyMap<EngineId, string>): Engine => ({
    ...describeEngine(engine),
    assigned_role: assignedRoleOf(engine) ?? null,
    trouble: troubles.get(engine.id) ?? null,
  });
  const describeAll = (): readonly Engine[] => {
    const troubles = engineTroubles(fleet.engines);
    return fleet.engines.map((engine) => describe(engine, troubles));
  };
  const engineOf = (id: string): EngineRecord => {
    const engine = fleet.engine(asEngineId(id));
    if (!engine) throw new EspalierError("engine_not_found");
    return engine;
  };
  const describeOf = (id: EngineId) => describe(engineOf(id), engineTroubles(fleet.engines));

  const params = Type.Object({
    id: Type.String({ description: "Engine id, percent-encoded." }),
  });
  const unknown = { 404: error("Engine not found.") };
  const operation = (operationId: string, summary: string, response: object) => ({
    ...{ operationId, summary, tags: ["engines"], response },
  });
  const list = operation("listEngines", "Engines with state and load.", {
    200: described(closed({ engines: Type.Array(engine) })),
  });
  const add = {
    ...operation("addEngine", "Add an engine, mesh-wide.", {
      201: answer("Engine added.", engine),
      400: error("Invalid body."),
    }),
    body: newEngine,
  };
  const get = {
    ...operation("getEngine", "State and load of one engine.", { 200: described(engine), ...unknown }),
    params,
  };
  const drain = {
    ...operation("drainEngine", "Drain or undrain an engine.", {
      ...{ 200: described(engine), 400: error("Invalid body."), ...unknown },
    }),
    ...{ params, body: drainRequest },
  };
  const remove = {
    ...operation("removeEngine", "Remove an engine, mesh-wide. Requests in flight finish.", {
      ...{ 204: bare("Engine removed."), ...unknown },
    }),
    params,
  };

  app.get("/admin/engines", { schema: list }, async () => ({ engines: describeAll() }));
  app.get<ById>("/admin/engines/:id", { schema: get }, async ({ params }) => describeOf(asEngineId(params.id)));
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
    if (draining && isMoving(body)) moveStreams(id);
    return describeOf(id);
  });
  app.delete<ById>("/admin/engines/:id", { schema: remove }, async ({ params }, reply) => {
    const { id } = engineOf(params.id);
    operators.remove(id);
    logger.info("engine removed by an operator", { engine: id });
    return reply.code(204).send();
  });
}

function isMoving(body: unknown): boolean {
  return typeof body === "object" && body !== null && "move" in body && body.move === true;
}

function readDraining(body: unknown): boolean {
  if (typeof body === "object" && body !== null && "draining" in body && typeof body.draining === "boolean") {
    return body.draining;
  }
  throw new EspalierError("invalid_type", 'Invalid body: expected {"draining": true} or {"draining": false}.', {
    param: "draining",
  });
}
