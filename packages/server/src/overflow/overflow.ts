import { type Endpoint, editBody, type RequestView } from "@espalier/api";
import { type Clock, counterBy, EspalierError, type Meter, type Scheduler, type Startable } from "@espalier/core";
import { closed, type Described, nullable, Type } from "@espalier/core/schema";
import { createProxy, type Proxy as EngineProxy } from "@espalier/engines";
import type { NoteChannel } from "@espalier/shared-tree";
import type { CompiledConfig, OverflowConfig, OverflowReason } from "../config/index.ts";
import type { ClientRequest, OverflowPlan, PlannedRequest, ServiceClass } from "../request/planned-request.ts";
import type { RouterContext } from "../router-context.ts";
import { OverflowSpend, type Reservation } from "./overflow-spend.ts";

/** A request that has an overflow plan. */
export type OverflowedRequest = Pick<PlannedRequest, "pool" | "family" | "features"> & {
  readonly overflow?: OverflowPlan | undefined;
};

/** How a request at a backend ended. */
type OverflowOutcome = "completed" | "failed" | "cut" | "client_closed";

/** Why a backend that a request might go to does not get it. */
type Withheld = "budget" | "paused";

/** A backend as `GET /admin/status` has it. Amounts are those of all routers, in the currency of the price. */
export const overflowStatus = closed({
  name: Type.String(),
  api: Type.Enum(["openai", "anthropic"]),
  /** As engines name them. */
  models: Type.Array(Type.String()),
  inFlight: Type.Integer({ description: "Requests in flight from this router." }),
  spent: closed(
    { hour: Type.Number(), day: Type.Number() },
    { description: "Mesh-wide spend in the current hour and day (UTC)." },
  ),
  /** Null where there is no bound. */
  budget: closed({ hour: nullable(Type.Number()), day: nullable(Type.Number()) }),
  isPaused: Type.Boolean({ description: "Whether the backend is in cooldown after a failure." }),
});

type OverflowStatus = Described<typeof overflowStatus>;

/** One backend, with what this router has to do with it. */
export class OverflowBackend {
  readonly config: OverflowConfig;
  inFlight = 0;
  pausedUntilMs = Number.NEGATIVE_INFINITY;

  constructor(config: OverflowConfig) {
    this.config = config;
  }

  costOf(promptTokens: number, outputTokens: number): number {
    const { input, output } = this.config.price;
    return (promptTokens * input + outputTokens * output) / 1e6;
  }
}

interface OverflowOptions {
  readonly config: CompiledConfig;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly meter: Meter;
  readonly channel: NoteChannel | undefined;
}

/** The pause of a backend that failed and did not say how long. */
const usualPauseMs = 5_000;
/** The longest pause. */
const maxPauseMs = 60_000;

/** The providers outside the fleet that answer requests when the engines cannot. */
export class Overflow implements Startable {
  readonly backends: readonly OverflowBackend[];
  readonly proxy: EngineProxy;
  readonly meters: OverflowMeters;
  readonly #clock: Clock;
  readonly #spend: OverflowSpend;

  constructor({ config, clock, scheduler, meter, channel }: OverflowOptions) {
    this.backends = config.overflow.map((backend) => new OverflowBackend(backend));
    // Without the TLS options of connections to engines, which may have an authority of their own.
    this.proxy = createProxy({ clock, scheduler, options: { ...config.timeouts, ...config.limits } });
    this.meters = createOverflowMeters(meter);
    this.#clock = clock;
    this.#spend = new OverflowSpend({ channel, clock, scheduler, meter });
  }

  async start(): Promise<void> {
    await this.proxy.start();
    await this.#spend.start();
  }

  async stop(): Promise<void> {
    await this.#spend.stop();
    await this.proxy.stop();
  }

  /** Whether any backend answers for a model. */
  serves(model: string): boolean {
    return this.backends.some(({ config }) => config.models.has(model));
  }

  /** The first backend that takes a request for this reason now; else why the last one that could does not. */
  find(
    { pool, family, features, overflow }: OverflowedRequest,
    reason: OverflowReason,
    tried: ReadonlySet<OverflowBackend> = new Set(),
  ): OverflowBackend | Withheld | undefined {
    let withheld: Withheld | undefined;
    if (!overflow) return undefined;
    for (const backend of this.backends) {
      const { name, api, models, when, budget, exceptTenants } = backend.config;
      if (api !== family || !models.has(pool.model) || !when.has(reason) || tried.has(backend)) continue;
      if (exceptTenants.has(overflow.tenant)) continue;
      const cost = backend.costOf(features.promptTokens, features.expectedOutputTokens);
      const { hour, day } = this.#spend.of(name);
      if (this.#isPaused(backend)) withheld = "paused";
      else if (hour + cost > budget.hour || day + cost > budget.day) withheld = "budget";
      else return backend;
    }
    return withheld;
  }

  /** Counts what a request may cost as spent. */
  reserve({ config }: OverflowBackend, cost: number): Reservation {
    return this.#spend.reserve(config.name, cost);
  }

  /** It failed: it gets no requests for a while. @param retryAfterMs undefined when it did not say how long */
  pause(backend: OverflowBackend, retryAfterMs: number | undefined): void {
    backend.pausedUntilMs = this.#clock.nowMs() + Math.min(maxPauseMs, retryAfterMs ?? usualPauseMs);
  }

  describe(): readonly OverflowStatus[] {
    return this.backends.map((backend) => {
      const { name, api, models, budget } = backend.config;
      const bound = (amount: number): number | null => (amount === Number.POSITIVE_INFINITY ? null : amount);
      return {
        ...{ name, api, models: [...models.keys()], inFlight: backend.inFlight, spent: this.#spend.of(name) },
        budget: { hour: bound(budget.hour), day: bound(budget.day) },
        isPaused: this.#isPaused(backend),
      };
    });
  }

  #isPaused({ pausedUntilMs }: OverflowBackend): boolean {
    return pausedUntilMs > this.#clock.nowMs();
  }
}

/** Metrics of overflow backends. */
export interface OverflowMeters {
  ended(backend: string, reason: OverflowReason, outcome: OverflowOutcome): void;
  tokens(backend: string, kind: "prompt" | "completion", count: number): void;
  spent(backend: string, cost: number): void;
  /** A request might have gone to a backend. */
  withheld(cause: Withheld): void;
}

function createOverflowMeters(meter: Meter): OverflowMeters {
  const requests = meter.counter(
    "espalier_overflow_requests_total",
    "Requests sent to overflow backends, by backend, reason and outcome.",
    ["backend", "reason", "outcome"],
  );
  const tokens = meter.counter(
    "espalier_overflow_tokens_total",
    "Tokens of overflow backends, reported or estimated: prompt, completion.",
    ["backend", "kind"],
  );
  return {
    ended: (backend, reason, outcome) => requests.series(backend, reason, outcome).add(),
    tokens: (backend, kind, count) => tokens.series(backend, kind).add(count),
    spent: counterBy(
      meter,
      "backend",
      "espalier_overflow_spent_total",
      "Cost of requests to overflow backends, in the currency of the configured price.",
    ),
    withheld: counterBy(
      meter,
      "reason",
      "espalier_overflow_withheld_total",
      "Requests not sent to an overflow backend, by reason: budget or cooldown.",
    ),
  };
}

type Choosing = Pick<RouterContext, "admission" | "fleet" | "overflow">;

/** Requests behind which it does not wait, because a backend would take it; undefined for any number. */
export function maxAheadOf({ fleet, overflow }: Choosing, plan: PlannedRequest): number | undefined {
  if (!isEngineUp(fleet, plan) && overflow.find(plan, "no_engine") instanceof OverflowBackend) return 0;
  const found = overflow.find(plan, "queue");
  return found instanceof OverflowBackend ? found.config.maxQueued : undefined;
}

/** Why a backend would be asked, if the request came now; undefined if it would go to an engine, or wait for one. */
export function overflowReason(context: Choosing, plan: PlannedRequest): OverflowReason | undefined {
  if (!isEngineUp(context.fleet, plan)) return "no_engine";
  const queued = context.admission.of(plan.pool)?.queued ?? 0;
  return queued >= (maxAheadOf(context, plan) ?? Number.POSITIVE_INFINITY) ? "queue" : undefined;
}

/** Whether some engine of its pool can begin its answer. */
export function isEngineUp(fleet: RouterContext["fleet"], { pool }: PlannedRequest): boolean {
  return fleet.pool(pool.model).some(({ usable, engine }) => usable && engine.role !== "prefill");
}

/** Endpoints whose requests providers answer as engines do. */
const overflowEndpoints: ReadonlySet<Endpoint["id"]> = new Set([
  "chat",
  "completions",
  "embeddings",
  "responses",
  "messages",
]);

interface OverflowPlanning {
  readonly overflow: Pick<Overflow, "serves">;
  readonly admission: { readonly config: CompiledConfig["admission"] };
}

/**
 * @param model as engines name it
 * @returns undefined for a request that never goes to an overflow backend
 * @throws EspalierError `invalid_header`
 */
export function planOverflow(
  { overflow, admission: { config } }: OverflowPlanning,
  { headers, apiKeyName }: Pick<ClientRequest, "headers" | "apiKeyName">,
  { view, received }: { readonly view: RequestView; readonly received: Buffer },
  model: string,
  service: ServiceClass | undefined,
): OverflowPlan | undefined {
  if (!overflow.serves(model) || !overflowEndpoints.has(view.endpoint.id)) return undefined;
  const asked = headers["x-espalier-overflow"];
  if (asked !== undefined && asked !== "allow" && asked !== "never") {
    throw new EspalierError("invalid_header", "Invalid header x-espalier-overflow: expected allow or never.", {
      param: "x-espalier-overflow",
    });
  }
  const name = service?.className ?? config.defaultClass;
  const isForbidden =
    config.mode === "on" && config.classes.some((one) => one.name === name && one.overflow === "never");
  if (asked === "never" || isForbidden) return undefined;
  const stripUsage = view.canAddUsage;
  return {
    tenant: service?.tenant ?? apiKeyName ?? "",
    stripUsage,
    bodyFor: (name) => editBody(received, view, { model: name, includeUsage: stripUsage ? true : undefined }),
  };
}

/** Headers of clients that providers understand. The others say who the client is, and stay here. */
const passedHeaders: ReadonlySet<string> = new Set([
  "accept",
  "anthropic-beta",
  "anthropic-version",
  "content-type",
  "openai-beta",
]);

/** @param pairs flat names and values */
export function overflowHeaders(pairs: readonly string[]): readonly string[] {
  return pairs.filter((_, at) => passedHeaders.has(pairs[at - (at % 2)]!.toLowerCase()));
}

/** The version of its API that Anthropic asks every client to name. */
const anthropicVersion = "2023-06-01";

/** The headers of a backend itself, as flat pairs. @param client those of the client that are passed on */
export function backendHeaders({ key, api }: OverflowConfig, client: readonly string[]): readonly string[] {
  const hasVersion = client.some((text, at) => at % 2 === 0 && text.toLowerCase() === "anthropic-version");
  const version = api === "anthropic" && !hasVersion ? ["anthropic-version", anthropicVersion] : [];
  if (!key) return version;
  return api === "anthropic" ? [...version, "x-api-key", key.reveal()] : ["authorization", `Bearer ${key.reveal()}`];
}
