import { EspalierError, type Logger, type Scheduler } from "@espalier/core";
import type { EngineRecord, Fleet } from "@espalier/engines";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { readObject } from "../data-plane/read-body.ts";
import type { OperatorEngines } from "../lifecycle/operator-engines.ts";
import { baseUrl, findEngine } from "../request/named-engine.ts";

export interface WorkerRoutesOptions {
  readonly fleet: Pick<Fleet, "engines" | "engine" | "onChange">;
  readonly operators: Pick<OperatorEngines, "add" | "remove">;
  /** Whether an engine of this URL may be added. */
  readonly isAllowed: (url: string) => boolean;
  /** Requests that all routers have in flight at an engine. */
  readonly loadOf: (engine: EngineRecord) => number;
  readonly scheduler: Scheduler;
  readonly logger: Logger;
}

/** How long `POST /add_worker` waits for the engine's first healthy answer, as other routers do while a model loads. */
const addWithinMs = 600_000;

type Role = EngineRecord["role"];
const roles: Readonly<Record<string, Role>> = { regular: "both", prefill: "prefill", decode: "decode" };
const typeOf = { both: "regular", prefill: "prefill", decode: "decode" } as const satisfies Record<Role, string>;

/**
 * Membership as RL frameworks write it: `/workers` of sglang-router 0.2.2 and later and of vllm-router, and `/add_worker` of
 * earlier ones. The engines are those of operators: every router of the mesh gets them.
 */
export function registerWorkers(app: FastifyInstance, options: WorkerRoutesOptions): void {
  const { fleet, operators, logger, loadOf } = options;
  const present = (): readonly EngineRecord[] => fleet.engines.filter(({ state }) => state !== "removed");
  const describe = (engine: EngineRecord) => describeWorker(engine, loadOf(engine));
  const find = (named: string): EngineRecord | undefined => findEngine(present(), named);
  const add = (written: Registration): EngineRecord => {
    const known = findEngine(present(), written.url);
    if (known?.role === written.role) return known;
    if (!options.isAllowed(written.url)) {
      const why = `The host of ${written.url} is not in rollouts.allow.`;
      throw new EspalierError("engine_not_allowed", why, { param: "url" });
    }
    const id = operators.add(engineOf(written));
    logger.info("engine added by an RL framework", { engine: id, url: written.url });
    return fleet.engine(id)!;
  };
  const remove = ({ id }: EngineRecord): void => {
    operators.remove(id);
    logger.info("engine removed by an RL framework", { engine: id });
  };

  app.get<{ Querystring: { model?: string } }>("/workers", async ({ query: { model } }) => {
    const engines = present().filter(({ models }) => !model || models?.some(({ id }) => id === model));
    const workers = engines.map(describe);
    const count = (type: string): number => workers.filter((one) => one.worker_type === type).length;
    const stats = {
      prefill_count: count("prefill"),
      decode_count: count("decode"),
      regular_count: count("regular"),
    };
    return { workers, total: workers.length, stats };
  });
  app.get("/list_workers", async () => ({ urls: present().map(({ url }) => url) }));
  app.post("/workers", async (request, reply) => {
    const { id, url } = add(readRegistration(request));
    const location = `/workers/${encodeURIComponent(id)}`;
    const message = "Engine added; it gets requests once it is healthy.";
    const answer = { success: true, status: "accepted", worker_id: id, url, location, message };
    return reply.code(202).header("location", location).send(answer);
  });
  app.post("/add_worker", async (request) => {
    const engine = add(readRegistration(request));
    await untilServing(engine, options);
    return { success: true, status: "success", message: `Engine ${engine.id} is up.`, worker_id: engine.id };
  });
  app.post("/remove_worker", async (request) => {
    const url = readUrl(request);
    const engine = find(url);
    if (engine) remove(engine);
    return { success: true, status: "success", message: engine ? `Engine ${engine.id} removed.` : "Engine unknown." };
  });
  app.get<ByName>("/workers/*", async ({ params }, reply) => {
    const engine = find(params["*"]);
    return engine ? describe(engine) : reply.code(404).send(unknownWorker(params["*"]));
  });
  app.delete<ByName>("/workers/*", async ({ params }, reply) => {
    const engine = find(params["*"]);
    if (!engine) return reply.code(404).send(unknownWorker(params["*"]));
    remove(engine);
    const message = "Engine removed; its requests in flight finish.";
    return reply.code(202).send({ success: true, status: "accepted", worker_id: engine.id, message });
  });
}

interface ByName {
  Params: { "*": string };
}

/** The error of sglang-router, whose clients look at the code. */
const unknownWorker = (named: string) => ({ error: `Worker ${named} not found`, code: "WORKER_NOT_FOUND" });

/** What a framework says of an engine. */
interface Registration {
  /** Without a rank. */
  readonly url: string;
  readonly role: Role;
  readonly bootstrapPort: number | undefined;
}

/** @throws EspalierError for a registration without a usable URL or type */
function readRegistration(request: FastifyRequest): Registration {
  const body = readObject(request.body);
  const { worker_type: type = "regular", bootstrap_port: port } = body;
  const role = typeof type === "string" && Object.hasOwn(roles, type) ? roles[type] : undefined;
  if (!role) {
    const expected = Object.keys(roles).join(", ");
    throw new EspalierError("invalid_value", `worker_type is not one of ${expected}.`, { param: "worker_type" });
  }
  const bootstrapPort = port === undefined || port === null ? undefined : Number(port);
  return { url: readUrl(request), role, bootstrapPort };
}

/** The URL of an engine in the query, also not encoded, or in the body. */
function readUrl({ query, body }: FastifyRequest): string {
  const { url, worker_url: other } = query as Readonly<Record<string, unknown>>;
  const written = url ?? other ?? readObject(body).url;
  if (typeof written !== "string") throw new EspalierError("missing_field", "`url` is missing.", { param: "url" });
  return baseUrl(written) ?? refuseUrl(written);
}

function refuseUrl(written: string): never {
  throw new EspalierError("invalid_value", `${JSON.stringify(written)} is not the URL of an engine.`, { param: "url" });
}

/** An element of `engines`. Only SGLang's engines are registered with a type: theirs is the KV transfer. */
function engineOf({ url, role, bootstrapPort }: Registration): object {
  if (role === "both") return { url };
  const port = bootstrapPort === undefined ? {} : { port: bootstrapPort };
  return { url, role, "kv-transfer": { protocol: "sglang", ...port } };
}

/** Whether requests for its models reach an engine. */
const isServing = ({ state, models }: EngineRecord): boolean => state === "up" && models?.[0] !== undefined;

/** One engine as sglang-router and vllm-router list it. */
function describeWorker(engine: EngineRecord, load: number) {
  const { id, url, models, role, kvTransfer } = engine;
  return {
    id,
    url,
    model_id: models?.[0]?.id ?? "unknown",
    worker_type: typeOf[role],
    is_healthy: isServing(engine),
    load,
    connection_mode: "http",
    priority: 50,
    cost: 1,
    ...(role === "prefill" && kvTransfer?.port !== undefined && { bootstrap_port: kvTransfer.port }),
  };
}

/** @throws EspalierError `upstream_timeout`, or `engine_not_found` when it was removed meanwhile */
function untilServing(engine: EngineRecord, { fleet, scheduler }: WorkerRoutesOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    const settle = (): void => {
      if (!isServing(engine) && engine.state !== "removed") return;
      end();
      if (isServing(engine)) resolve();
      else reject(new EspalierError("engine_not_found"));
    };
    const end = (): void => {
      unsubscribe();
      cancel();
    };
    const unsubscribe = fleet.onChange((_change, changed) => changed === engine && settle());
    const cancel = scheduler.after(addWithinMs, () => {
      end();
      const reason = engine.state === "up" ? "it has not named its models" : engine.stateReason;
      const why = `Engine ${engine.id} was not healthy within ${addWithinMs / 60_000} min: ${reason}.`;
      reject(new EspalierError("upstream_timeout", why));
    });
    settle();
  });
}
