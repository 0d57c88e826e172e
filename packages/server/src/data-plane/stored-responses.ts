import { parseStoredResponsePath } from "@espalier/api";
import { type Clock, EspalierError, type HttpClient, RecencyMap } from "@espalier/core";
import type { EngineRecord, Fleet } from "@espalier/engines";
import type { Bindings } from "@espalier/shared-tree";
import type { FastifyInstance } from "fastify";
import type { ClientRequest, PlannedRequest } from "../request/planned-request.ts";
import type { RouterContext } from "../router-context.ts";
import type { Pools } from "../routing/pools.ts";
import { answer, engineHead, planForward } from "../serving/answer-request.ts";

/**
 * Remembers which engine has which stored response of the Responses API. Follow-ups and retrievals must go to that
 * engine.
 */
export interface StoredResponses {
  remember(responseId: string, engineId: string): void;
  holderOf(responseId: string): string | undefined;
  forget(responseId: string): void;
  readonly size: number;
}

/** How long other routers remember it; afterwards they ask the engines. */
const sharedTtlMs = 3_600_000;

/**
 * @param capacity most entries; beyond it the least recently used one is forgotten
 * @param shared bindings of all routers; undefined when nothing is shared
 */
export function createStoredResponses(
  capacity: number,
  shared: Pick<Bindings, "get" | "set" | "forget"> | undefined = undefined,
): StoredResponses {
  const holders = new RecencyMap<string, string>();
  return {
    remember(responseId, engineId) {
      if (holders.get(responseId) !== engineId) shared?.set(responseId, engineId, sharedTtlMs);
      holders.set(responseId, engineId);
      if (holders.size > capacity) holders.deleteOldest();
    },
    holderOf(responseId) {
      return holders.use(responseId) ?? shared?.get(responseId);
    },
    forget(responseId) {
      holders.delete(responseId);
      shared?.forget(responseId);
    },
    get size() {
      return holders.size;
    },
  };
}

/**
 * Finds the engine that has a stored response: from memory, or by asking the engines if another router handled it or
 * this one has restarted since.
 *
 * @param param the field that names the response, for the error; undefined when the path does
 * @returns the engine's id
 * @throws EspalierError `response_not_found`, or `overloaded`
 */
export async function locateResponse(
  context: RouterContext,
  responseId: string,
  param?: "previous_response_id",
): Promise<string> {
  const { storedResponses, responseFinder } = context;
  const known = storedResponses.holderOf(responseId);
  if (known !== undefined) return known;
  const found = await responseFinder.find(responseId);
  if (found === undefined) {
    throw new EspalierError("response_not_found", "No engine stores this response.", param && { param });
  }
  storedResponses.remember(responseId, found);
  return found;
}

/** Registers reading, cancelling and deleting a stored response. Each request goes to the engine that has it. */
export function registerStoredResponseRoutes(app: FastifyInstance, context: RouterContext): void {
  for (const url of ["/v1/responses/:id", "/v1/responses/:id/:action"]) {
    app.route({
      method: ["GET", "DELETE", "POST"],
      url,
      config: { family: "openai", endpointId: "stored_response" },
      handler: (request, reply) =>
        answer(context, request, reply, "openai", () => planStoredResponse(context, request)),
    });
  }
}

/**
 * Plans a request for a stored response.
 *
 * @throws EspalierError `response_not_found`, or `overloaded`
 */
export async function planStoredResponse(context: RouterContext, request: ClientRequest): Promise<PlannedRequest> {
  const passed = planForward(context, request);
  const path = parseStoredResponsePath(request.url);
  if (!path) throw new EspalierError("response_not_found", "The path does not name a response.");
  const onlyEngine = await locateResponse(context, path.id);
  const engine = context.fleet.engines.find((record) => record.id === onlyEngine);
  const model = engine?.models?.[0]?.id;
  if (model === undefined)
    throw new EspalierError("response_not_found", "The engine that stored this response is gone.");
  if (request.method === "DELETE") context.storedResponses.forget(path.id);
  const pool = context.pools.settingsFor(model);
  const head = engineHead(context, request, pool);
  return { ...passed, ...head, endpointId: "stored_response", pool, targets: context.fleet.pool(model), onlyEngine };
}

const askTimeoutMs = 2_000;
/** Largest stored response that a lookup reads. */
const maxAnswerBytes = 16_777_216;
/** Most engines asked by one lookup. */
const maxAsked = 64;
/** Most lookups at once. */
const maxLookups = 32;
/** How long, and for how many responses, the router remembers that no engine has them. */
const absentMs = 2_000;
/** Responses that are remembered as absent. */
const maxAbsent = 4_096;

/** Finds the engine that has a stored response unknown to this router. */
export interface ResponseFinder {
  /**
   * @returns the engine's id; undefined when no engine that is up has it
   * @throws EspalierError `overloaded` while there are too many lookups
   */
  find(responseId: string): Promise<string | undefined>;
}

interface ResponseFinderDependencies {
  readonly fleet: Pick<Fleet, "engines">;
  readonly pools: Pick<Pools, "settingsFor">;
  /** A client of its own, so that health checks do not queue behind clients' lookups. */
  readonly http: HttpClient;
  readonly clock: Clock;
}

/** A lookup asks every engine, so concurrent lookups of the same response share one. */
export function createResponseFinder({ fleet, pools, http, clock }: ResponseFinderDependencies): ResponseFinder {
  const lookups = new Map<string, Promise<string | undefined>>();
  const absentUntilMs = new RecencyMap<string, number>();

  const ask = async (engine: EngineRecord, responseId: string): Promise<string> => {
    const response = await http({
      url: `${engine.url}/v1/responses/${encodeURIComponent(responseId)}`,
      headers: asRecord(pools.settingsFor(engine.models?.[0]?.id ?? "*").upstreamHeaders),
      timeoutMs: askTimeoutMs,
      maxBytes: maxAnswerBytes,
    });
    if (response.status !== 200) throw new EspalierError("response_not_found");
    return engine.id;
  };
  const lookUp = async (responseId: string): Promise<string | undefined> => {
    const candidates = fleet.engines.filter((engine) => engine.state === "up").slice(0, maxAsked);
    const found = await Promise.any(candidates.map((engine) => ask(engine, responseId))).catch(() => undefined);
    lookups.delete(responseId);
    if (found === undefined) absentUntilMs.set(responseId, clock.nowMs() + absentMs);
    if (absentUntilMs.size > maxAbsent) absentUntilMs.deleteOldest();
    return found;
  };
  return {
    async find(responseId) {
      if (clock.nowMs() < (absentUntilMs.get(responseId) ?? 0)) return undefined;
      const running = lookups.get(responseId);
      if (running) return running;
      if (lookups.size >= maxLookups) throw new EspalierError("overloaded", "Too many concurrent response lookups.");
      const lookup = lookUp(responseId);
      lookups.set(responseId, lookup);
      return lookup;
    },
  };
}

function asRecord(pairs: readonly string[]): Record<string, string> {
  const record: Record<string, string> = {};
  for (let i = 0; i + 1 < pairs.length; i += 2) record[pairs[i] as string] = pairs[i + 1] as string;
  return record;
}
