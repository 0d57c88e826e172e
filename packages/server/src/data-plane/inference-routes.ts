import { EspalierError } from "@espalier/common";
import { findTransferField } from "@espalier/disaggregation";
import {
  type Endpoint,
  editBody,
  endpoints,
  type RequestView,
  readRequestView,
  readSessionKey,
} from "@espalier/openai";
import { policyCatalogue } from "@espalier/policies";
import { expectedOutputTokens, type PromptBlocks } from "@espalier/routing";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { type BodyFields, planService } from "../admission/plan-service.ts";
import type { SplitSource } from "../disaggregation/split-source.ts";
import { describeRequest } from "../tracing/describe-request.ts";
import { locateResponse } from "./locate-response.ts";
import type { PlannedRequest } from "./planned-request.ts";
import { resolvePool } from "./resolve-pool.ts";
import type { RouterContext } from "./router-context.ts";
import { answer, bytesPerToken, clientHeaders, ownHeaders } from "./run-exchange.ts";

const noBody = Buffer.alloc(0);

/** Every path whose requests are routed to an engine by their body. */
export function registerInferenceRoutes(app: FastifyInstance, context: RouterContext): void {
  for (const endpoint of endpoints) {
    app.route({
      method: endpoint.method,
      url: endpoint.path,
      config: { family: endpoint.family, endpointId: endpoint.id },
      handler: (request, reply) =>
        answer(context, request, reply, endpoint.family, () => planInference(context, endpoint, request)),
    });
  }
}

/**
 * What is to be done with a request, before an engine is chosen for it.
 *
 * @throws EspalierError for everything that keeps the request from being sent to an engine
 */
export function planInference(
  context: RouterContext,
  endpoint: Endpoint,
  request: FastifyRequest,
): PlannedRequest | Promise<PlannedRequest> {
  const acceptedMs = context.clock.nowMs();
  const received = Buffer.isBuffer(request.body) ? request.body : noBody;
  const view = readRequestView(endpoint, received, { maxDepth: context.live.settings.maxNesting });
  const reserved = context.live.settings.trustTransferFields ? undefined : findTransferField(view);
  if (reserved !== undefined) {
    throw new EspalierError("reserved_field", `The field ${reserved} is for a router to set.`, { param: reserved });
  }
  const complete = (onlyEngine: string | undefined): PlannedRequest | Promise<PlannedRequest> =>
    planView(context, request, { view, received, acceptedMs, onlyEngine });
  if (view.previousResponseId === undefined) return complete(undefined);
  return locateResponse(context, view.previousResponseId, "previous_response_id").then(complete);
}

interface ReadRequest {
  readonly view: RequestView;
  readonly received: Buffer;
  readonly acceptedMs: number;
  readonly onlyEngine: string | undefined;
}

function planView(
  context: RouterContext,
  request: FastifyRequest,
  read: ReadRequest,
): PlannedRequest | Promise<PlannedRequest> {
  const { view, received, acceptedMs, onlyEngine } = read;
  const { endpoint } = view;
  const sessionKey = readSessionKey(context.live.settings.sessionKeyLadder, request.headers, view);
  const { model, pool, targets } = resolvePool(context, view.model, sessionKey);
  const stripUsage = context.live.settings.injectUsage && endpoint.usageInjectable && view.stream && !view.wantsUsage;
  const renamed = view.model !== undefined && view.model !== model;
  const { service, bodyFields, fieldsFor } = planService(context.admission.config, request, view, context.clock);
  const edit: SplitSource["edit"] = (set, { isAnswer, workMs }) =>
    editBody(received, view, {
      model: renamed ? model : undefined,
      includeUsage: stripUsage && isAnswer ? true : undefined,
      set: withSet(fieldsFor?.(workMs) ?? bodyFields, set),
    });
  const body = edit(undefined, { isAnswer: true, workMs: 0 });
  const estimatedTokens = Math.ceil(view.promptBytes / bytesPerToken);
  const parent = context.fleet.model(model)?.parent;
  const { trace } = request;
  if (trace) describeRequest(trace, view, model);
  const readMs = trace?.nowMs() ?? 0;
  const plan = (prompt: PromptBlocks | undefined): PlannedRequest => ({
    trace,
    endpointId: endpoint.id,
    family: endpoint.family,
    method: endpoint.method,
    path: endpoint.path + queryOf(request.url),
    headers: clientHeaders(context, request),
    ownHeaders: ownHeaders(context, request),
    body,
    requestId: request.id,
    pool,
    targets,
    onlyEngine,
    prompt,
    features: {
      promptTokens: prompt?.tokens ?? estimatedTokens,
      expectedOutputTokens: endpoint.kind === "generate" ? expectedOutputTokens(view) : 0,
      sessionKey,
      prefixKey: prompt && prefixKeyOf(prompt, pool.policy.prefixKeyTokens),
      adapter: parent === undefined ? undefined : model,
    },
    stripUsage,
    split: endpoint.kind === "generate" ? { view, edit } : undefined,
    bodyWith: parent === undefined && !fieldsFor ? undefined : (set, workMs) => edit(set, { isAnswer: true, workMs }),
    storesResponse: endpoint.id === "responses",
    service,
    acceptedMs,
    answerDueMs: acceptedMs + (context.live.settings.answerMs ?? Number.POSITIVE_INFINITY),
  });
  if (!policyCatalogue[pool.policy.name].readsPrefixes || endpoint.kind !== "generate") return plan(undefined);
  const prompt = context.prefix.reader.read({
    model,
    parent,
    endpoint: endpoint.id,
    body: view.body,
    estimatedTokens,
  });
  const planRead = (read: PromptBlocks): PlannedRequest => {
    trace?.step("tokenize", readMs, { "espalier.prompt_from": read.from, "espalier.prompt_tokens": read.tokens });
    return plan(read);
  };
  return prompt instanceof Promise ? prompt.then(planRead) : planRead(prompt);
}

/** Nearly always there is one of the two at most. */
function withSet(fields: BodyFields, set: BodyFields | undefined): BodyFields {
  return set === undefined ? fields : { ...fields, ...set };
}

/** Half of the chain hash at the block where so many tokens end, or at the last one of a shorter prompt. */
function prefixKeyOf({ chain, blockCount, blockSize }: PromptBlocks, keyTokens: number): number | undefined {
  const blocks = Math.min(blockCount, Math.max(1, Math.floor(keyTokens / blockSize)));
  return keyTokens > 0 && blocks > 0 ? chain[2 * (blocks - 1)] : undefined;
}

/** The engine gets the endpoint's own path: the client's may be spelled with escapes or a slash at its end. */
function queryOf(url: string): string {
  const mark = url.indexOf("?");
  return mark < 0 ? "" : url.slice(mark);
}
