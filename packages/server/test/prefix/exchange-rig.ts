import type { ServerResponse } from "node:http";
import { PassThrough } from "node:stream";
import { createSeededRandom, EspalierError, silentLogger } from "@espalier/common";
import { createPolicy } from "@espalier/policies";
import type { AttemptFailure, ExchangeOutcome, FailureKind, Upstream } from "@espalier/proxy";
import { InferenceExchange, type PlannedRequest } from "../../src/data-plane/inference-exchange.ts";
import { createRequestMetrics } from "../../src/data-plane/request-metrics.ts";
import type { RouterContext } from "../../src/data-plane/router-context.ts";
import { createStoredResponses } from "../../src/data-plane/stored-responses.ts";
import type { PromptBlocks } from "../../src/prefix/prompt-blocks.ts";
import { createTargetSelector } from "../../src/routing/select-target.ts";
import { type KnowledgeRig, knowledgeRig, type RigOptions } from "./knowledge-rig.ts";
import { promptOf, tokensOf } from "./prompts.ts";
import { type ScriptedFleet, specOf, startScriptedFleet } from "./scripted-fleet.ts";

export const prompt = promptOf(tokensOf("a", 100));

export interface ExchangeRig extends Omit<KnowledgeRig, "target">, Pick<ScriptedFleet, "target" | "engine"> {
  /** One request, as the proxy has it. */
  exchange(changes?: Partial<PlannedRequest>): InferenceExchange;
  /** Tokens of the prompt that a target is thought to hold. */
  held(key: string, of?: PromptBlocks): number;
}

/** Requests to engines `a` and `b`, of which the one with more of the prompt is chosen. */
export async function exchangeRig(options: RigOptions = {}): Promise<ExchangeRig> {
  const known = knowledgeRig(options);
  const scripted = await startScriptedFleet();
  await scripted.apply(specOf("a"), specOf("b"));
  const pool = {
    model: "m",
    policy: createPolicy("cache_aware"),
    upstreamHeaders: ["authorization", "Bearer engines"],
    forwardAuthorization: false,
  };
  const context = {
    clock: known.time.clock,
    logger: silentLogger,
    prefix: { knowledge: known.knowledge },
    metrics: createRequestMetrics(known.meter),
    selector: createTargetSelector(createSeededRandom(3), known.knowledge),
    storedResponses: createStoredResponses(10),
    drain: { started: false },
  } as unknown as RouterContext;
  const plan: PlannedRequest = {
    ...{ family: "openai", method: "POST", path: "/v1/completions", headers: [], ownHeaders: [], body: [] },
    ...{ requestId: "r-1", endpointId: "completions", pool, targets: scripted.fleet.pool("m"), onlyEngine: undefined },
    features: { promptTokens: 100, expectedOutputTokens: 10, sessionKey: undefined, prefixKey: undefined },
    ...{ prompt, stripUsage: false, storesResponse: false, acceptedMs: 0 },
  };
  return {
    ...known,
    target: scripted.target,
    engine: scripted.engine,
    exchange: (changes = {}) =>
      new InferenceExchange(context, { ...plan, ...changes }, new PassThrough() as unknown as ServerResponse),
    held: (key, of = prompt) => known.see(of, scripted.target(key)).gpu,
  };
}

/** Begins an attempt; the key of its target is `key`. */
export function begin(exchange: InferenceExchange): Upstream {
  const upstream = exchange.next()!;
  exchange.attemptStarted();
  return upstream;
}

export interface Failed {
  readonly kind?: FailureKind;
  readonly status?: number;
  readonly beforeFirstByte?: boolean;
}

/** Has an attempt fail as the proxy tells it. */
export function fail(exchange: InferenceExchange, upstream: Upstream, failed: Failed = {}): void {
  const { kind = "reset", beforeFirstByte = true, ...rest } = failed;
  const failure: AttemptFailure = {
    ...{ upstream, kind, beforeFirstByte, ...rest },
    error: new EspalierError("upstream_reset"),
  };
  exchange.attemptFailed(upstream, failure);
}

/** Has the client get an engine's answer to its end; `cached` tokens are reported where a number is given. */
export function answer(
  exchange: InferenceExchange,
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
  failures: [],
};
