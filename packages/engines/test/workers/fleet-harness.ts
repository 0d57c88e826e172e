import {
  asEngineId,
  createSeededRandom,
  type EngineSpec,
  EspalierError,
  type HttpClient,
  type HttpRequest,
  type HttpResponse,
} from "@espalier/core";
import {
  createRecordingLogger,
  createSeriesMeter,
  createVirtualTime,
  type LogLine,
  type SeriesMeter,
  type VirtualTime,
} from "@espalier/testing";
import {
  createFleet,
  type EngineRecord,
  type Fleet,
  type FleetDeps,
  type FleetOptionsInput,
  type FleetSharing,
  type Target,
} from "../../src/workers/index.ts";

/** What a scripted engine does with a request: a status and body, after a delay, or one of the ways to fail. */
export type Answer =
  | { readonly status: number; readonly body?: string; readonly afterMs?: number }
  | "refused"
  /** The router itself can open no connection. */
  | "short"
  | "silent"
  /** No answer either, and the router comes to see that only after three times its timeout. */
  | "late"
  | "garbled";

export const healthy: Answer = { status: 200 };

export function modelsAnswer(...ids: readonly string[]): Answer {
  return { status: 200, body: JSON.stringify({ object: "list", data: ids.map((id) => ({ id, object: "model" })) }) };
}

/** A vLLM page with this many requests running, and nothing else. */
export const vllmPage = (running: number): Answer => ({ status: 200, body: `vllm:num_requests_running ${running}\n` });

interface SeenRequest extends HttpRequest {
  readonly path: string;
  readonly atMs: number;
}

/** An engine as scripted by a test. `paths` may be changed at any time. */
export interface ScriptedEngine {
  readonly spec: EngineSpec;
  readonly paths: Record<string, Answer>;
  readonly seen: SeenRequest[];
  /** Times of the requests to one path, in milliseconds since the start of the test. */
  times(path: string): readonly number[];
}

export interface Harness {
  readonly fleet: Fleet;
  readonly time: VirtualTime;
  readonly meter: SeriesMeter;
  readonly lines: readonly LogLine[];
  /** Creates a healthy engine that serves model `m`. It is not applied. */
  engine(id: string, changes?: Partial<EngineSpec>, paths?: Record<string, Answer>): ScriptedEngine;
  /** Applies these engines and lets what they answer at once arrive. */
  apply(...engines: readonly ScriptedEngine[]): Promise<void>;
  record(id: string): EngineRecord;
  target(id: string): Target;
}

/** A fleet under virtual time before scripted engines. It is started. */
export async function startHarness(
  options: FleetOptionsInput = {},
  seed = 1,
  hooks: Pick<FleetDeps, "metricsEveryMs"> = {},
): Promise<Harness> {
  const harness = createHarness(options, seed, undefined, 0, hooks);
  await harness.fleet.start();
  return harness;
}

export function createHarness(
  options: FleetOptionsInput = {},
  seed = 1,
  sharing?: FleetSharing,
  firstIndex = 0,
  hooks: Pick<FleetDeps, "metricsEveryMs"> = {},
): Harness {
  const time = createVirtualTime();
  const logger = createRecordingLogger();
  const meter = createSeriesMeter();
  const engines = new Map<string, ScriptedEngine>();
  const http = createScriptedHttp(time, engines);
  const { clock, scheduler } = time;
  const fleet = createFleet({
    ...{ clock, scheduler, random: createSeededRandom(seed), http, logger, meter, options },
    ...(sharing ? { sharing } : { firstIndex }),
    ...hooks,
  });
  const record = (id: string): EngineRecord => fleet.engine(asEngineId(id))!;
  return {
    fleet,
    time,
    meter,
    lines: logger.lines,
    engine(id, changes = {}, paths = {}) {
      const engine = createScriptedEngine(makeSpec(id, changes), paths);
      engines.set(engine.spec.url, engine);
      return engine;
    },
    async apply(...applied) {
      fleet.apply(applied.map(({ spec }) => spec));
      await time.advanceAsync(0);
    },
    record,
    target: (id) => record(id).targets[0]!,
  };
}

export function makeSpec(id: string, changes: Partial<EngineSpec> = {}): EngineSpec {
  return { id: asEngineId(id), url: `http://${id}:8000`, models: [], role: "both", weight: 1, labels: {}, ...changes };
}

function createScriptedEngine(spec: EngineSpec, paths: Record<string, Answer>): ScriptedEngine {
  const seen: SeenRequest[] = [];
  return {
    spec,
    paths: { "/health": healthy, "/v1/models": modelsAnswer("m"), "/metrics": vllmPage(0), ...paths },
    seen,
    times: (path) => seen.filter((request) => request.path === path).map(({ atMs }) => atMs),
  };
}

function createScriptedHttp({ clock, scheduler }: VirtualTime, engines: Map<string, ScriptedEngine>): HttpClient {
  const later = (delayMs: number): Promise<void> =>
    delayMs === 0 ? Promise.resolve() : new Promise((resolve) => void scheduler.after(delayMs, resolve));

  return async (request): Promise<HttpResponse> => {
    const { origin, pathname } = new URL(request.url);
    const engine = engines.get(origin);
    const answer = engine?.paths[pathname] ?? { status: 404 };
    engine?.seen.push({ ...request, path: pathname, atMs: clock.nowMs() });
    if (answer === "short") throw new EspalierError("out_of_descriptors");
    if (answer === "refused") throw new EspalierError("upstream_connect_failed");
    if (answer === "garbled") throw new EspalierError("upstream_protocol_error");
    if (answer === "late") {
      await later(3 * request.timeoutMs);
      throw new EspalierError("upstream_timeout");
    }
    const afterMs = answer === "silent" ? Number.POSITIVE_INFINITY : (answer.afterMs ?? 0);
    if (answer === "silent" || afterMs > request.timeoutMs) {
      await later(request.timeoutMs);
      throw new EspalierError("upstream_timeout");
    }
    await later(afterMs);
    const body = answer.body ?? "";
    if (body.length > request.maxBytes) throw new EspalierError("upstream_protocol_error");
    return { status: answer.status, headers: {}, body, headMs: afterMs };
  };
}
