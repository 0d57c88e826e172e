import { createSeededRandom, EspalierError, silentLogger, silentTracer } from "@espalier/core";
import { createCandidateSet, createPolicy, defaultObjectives } from "@espalier/policies";
import { createPrefixIndex, type PrefixIndex } from "@espalier/prefix-index";
import {
  createCacheMeters,
  createLocalPlacements,
  createPrefixKnowledge,
  createRecentPrompts,
  createRetryBudget,
  createRetryMeters,
  createTargetSelector,
  DecisionLog,
  type FailureKind,
  maxKnownTargets,
  PoolWork,
  type PromptBlocks,
  Retries,
} from "@espalier/routing";
import type { FeedQuality } from "@espalier/shared-tree";
import { createSeriesMeter, promptOf, type SeriesMeter, tokensOf, type VirtualTime } from "@espalier/testing";
import { createStoredResponses } from "../../src/data-plane/stored-responses.ts";
import { createDecisionColumns } from "../../src/decisions/decision-columns.ts";
import type { AttemptFailure, Engine, ExchangeOutcome } from "../../src/request/answer-source.ts";
import { MovableStreams } from "../../src/request/movable-streams.ts";
import type { PlannedRequest } from "../../src/request/planned-request.ts";
import { createAttemptMetrics, createRequestMetrics } from "../../src/request/request-metrics.ts";
import type { BodyFilter } from "../../src/request/response-sink.ts";
import type { RouterContext } from "../../src/router-context.ts";
import { PoolSource } from "../../src/serving/pool-source.ts";
import { type ScriptedFleet, specOf, startScriptedFleet } from "./scripted-fleet.ts";

export const prompt = promptOf(tokensOf("a", 100));

/** How long a guess is believed where no events come. */
export const ttlMs = 600_000;

/** An engine that a request goes to. */
export interface Upstream extends Engine {
  /** Of the target, by its host's name. */
  readonly key: string;
}

/** A request's source of answers that a test calls as an exchange does. */
export class DrivenSource {
  readonly #source: PoolSource;
  /** What it was answered with. */
  #error: EspalierError | undefined;
  #proceeded: () => void = () => {};

  constructor({ exchange, ...context }: RouterContext, plan: PlannedRequest) {
    const retries = new Retries(exchange.retryBudget, exchange.retryMeters);
    const answerError = (error: EspalierError): void => {
      this.#error = error;
    };
    this.#source = new PoolSource({ ...context, exchange }, plan, { answerError, retries });
    this.#source.start({
      ...{ launch() {}, refuse() {}, withdraw() {}, move: () => false },
      proceed: () => this.#proceeded(),
      crash(thrown) {
        throw thrown;
      },
    });
  }

  get copies(): Retries {
    return this.#source.retries;
  }

  next(): Upstream | undefined | Promise<Upstream | undefined> {
    const chosen = this.#source.choose();
    if (chosen !== "later") return chosen && { ...chosen, key: new URL(chosen.url).hostname };
    return new Promise<void>((resolve) => {
      this.#proceeded = resolve;
    }).then(() => this.next());
  }

  responseStarted(_: Upstream, status: number, headers: readonly string[] = []): void {
    this.#source.answering(status, headers);
  }

  finish(outcome: ExchangeOutcome): EspalierError | undefined {
    this.#source.ended(outcome);
    return this.#error;
  }

  attemptStarted(): void {
    this.#source.started();
  }

  attemptFailed(failure: AttemptFailure): void {
    this.#source.failed(failure);
  }

  bodyFilter(status: number, contentType: string): BodyFilter | undefined {
    return this.#source.reader.filter(status, contentType);
  }

  responseHeaders(): readonly string[] {
    const headers: string[] = [];
    this.#source.editHeaders(headers);
    return headers;
  }

  firstByte(): void {
    this.#source.reader.firstByte();
  }
}

export interface ExchangeRig extends Pick<ScriptedFleet, "target" | "engine"> {
  readonly index: PrefixIndex;
  readonly time: VirtualTime;
  readonly meter: SeriesMeter;
  /** What is learned of both engines. */
  readonly work: PoolWork;
  /** One request, as an exchange has it. */
  exchange(changes?: Partial<PlannedRequest>): DrivenSource;
  /** Tokens of the prompt that a target is thought to hold. */
  held(key: string, of?: PromptBlocks): number;
}

export interface ExchangeRigOptions {
  /** What the events of both engines are worth. */
  readonly quality?: FeedQuality;
  /** Loading an adapter that an engine has not; engines serve every adapter when left out. */
  readonly loadAdapter?: () => Promise<boolean>;
}

/** Requests to engines `a` and `b`, of which the one with more of the prompt is chosen. */
export async function exchangeRig({ quality = "none", loadAdapter }: ExchangeRigOptions = {}): Promise<ExchangeRig> {
  const scripted = await startScriptedFleet();
  const { time } = scripted;
  const { clock } = time;
  const meter = createSeriesMeter();
  const index = createPrefixIndex({ maxTargets: maxKnownTargets, maxBlocks: 10_000, maxSets: 100 });
  const knowledge = createPrefixKnowledge({
    ...{ clock, index, recent: createRecentPrompts(), meters: createCacheMeters(meter) },
    placements: createLocalPlacements(index, clock),
    feedQualityOf: () => quality,
    placementTtlMs: ttlMs,
    placementTokens: 1_000_000,
    onPlaced: () => {},
  });
  await scripted.apply(specOf("a"), specOf("b"));
  const work = new PoolWork(clock);
  const pool = {
    model: "m",
    policy: createPolicy("cache_aware"),
    work,
    upstreamHeaders: ["authorization", "Bearer engines"],
    forwardAuthorization: false,
    holdMs: 0,
    objectivesOf: () => defaultObjectives,
    defaultClass: "default",
  };
  const context = {
    clock,
    logger: silentLogger,
    tracer: silentTracer,
    fleet: scripted.fleet,
    prefix: { knowledge },
    metrics: createRequestMetrics(meter),
    selector: createTargetSelector({ random: createSeededRandom(3), knowledge }),
    dryRunSelector: createTargetSelector({ random: createSeededRandom(3), knowledge }),
    storedResponses: createStoredResponses(10),
    adapterLoader: { load: () => loadAdapter?.(), isManaged: () => false },
    adapterUse: { begin: () => () => {}, ageMs: () => Number.POSITIVE_INFINITY },
    drain: { started: false },
    movableStreams: new MovableStreams(),
    decisions: { isWatched: false },
    prefixUse: { isWatched: false },
    recorder: { isOn: false },
    decisionLog: new DecisionLog(8, createDecisionColumns(8)),
    exchange: {
      ...{ logger: silentLogger, retryStatuses: new Set([429, 502, 503, 504]) },
      attemptMetrics: createAttemptMetrics(meter),
      retryMeters: createRetryMeters(meter),
      retryBudget: createRetryBudget(clock),
    },
  } as unknown as RouterContext;
  const plan: PlannedRequest = {
    ...{ family: "openai", method: "POST", path: "/v1/completions", headers: [], body: [], ownTraceparent: undefined },
    ...{
      release: () => {},
      requestId: "r-1",
      endpointId: "completions",
      pool,
      targets: scripted.fleet.pool("m"),
      onlyEngine: undefined,
    },
    features: { promptTokens: 100, expectedOutputTokens: 10, sessionKey: undefined, prefixKey: undefined },
    ...{ prompt, stripUsage: false, storesResponse: false, acceptedMs: 0 },
  };
  return {
    ...{ index, time, meter, work, target: scripted.target, engine: scripted.engine },
    exchange: (changes = {}) => new DrivenSource(context, { ...plan, ...changes }),
    held(key, of = prompt) {
      const candidates = createCandidateSet();
      const at = candidates.add(key, 0);
      knowledge.match(of);
      knowledge.describe(scripted.target(key), of, candidates, at);
      return candidates.matchedTokens[at]!;
    },
  };
}

/** Begins an attempt; the key of its target is `key`. */
export function begin(exchange: DrivenSource): Upstream {
  const upstream = exchange.next();
  if (!upstream || upstream instanceof Promise) throw new Error("no engine was chosen at once");
  exchange.attemptStarted();
  return upstream;
}

export interface Failed {
  readonly kind?: FailureKind;
  readonly status?: number;
  readonly beforeFirstByte?: boolean;
}

/** Has an attempt fail as an exchange tells it. */
export function fail(exchange: DrivenSource, _: Upstream, failed: Failed = {}): void {
  const { kind = "reset", beforeFirstByte = true, ...rest } = failed;
  exchange.attemptFailed({ kind, beforeFirstByte, ...rest, error: new EspalierError("upstream_reset") });
}

/** Has the client get an engine's answer to its end; `cached` tokens are reported where a number is given. */
export function answer(
  exchange: DrivenSource,
  upstream: Upstream,
  { status = 200, cached }: { readonly status?: number; readonly cached?: number } = {},
): void {
  const filter = exchange.bodyFilter(status, "application/json");
  exchange.responseStarted(upstream, status);
  exchange.firstByte();
  const details = cached === undefined ? {} : { prompt_tokens_details: { cached_tokens: cached } };
  const usage = { prompt_tokens: 100, completion_tokens: 1, total_tokens: 101, ...details };
  filter?.push(Buffer.from(JSON.stringify({ id: "x", choices: [], usage })));
  filter?.end();
  exchange.finish({ kind: "completed", status, bytes: 10 });
}

export const failedOutcome: ExchangeOutcome = {
  kind: "failed",
  error: new EspalierError("no_engine_available"),
};
