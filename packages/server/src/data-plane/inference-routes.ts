import { type Endpoint, editBody, endpoints, type RequestView, readSessionKey, viewRequest } from "@espalier/openai";
import { policyCatalogue } from "@espalier/policies";
import { expectedOutputTokens, type PromptBlocks } from "@espalier/routing";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { planService } from "../admission/plan-service.ts";
import { type ReadPrompt, scanInline } from "../large-bodies/large-bodies.ts";
import { answer, bytesPerToken, clientHeaders, ownHeaders } from "../request/answer-request.ts";
import { type BodyFields, type PlannedRequest, SplitSource } from "../request/planned-request.ts";
import { describeRequest } from "../tracing/describe-request.ts";
import { letGoOfBody } from "./body-room.ts";
import { locateResponse } from "./locate-response.ts";
import { refuseReserved } from "./refuse-reserved.ts";
import { resolvePool } from "./resolve-pool.ts";
import type { RouterContext } from "./router-context.ts";

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
  const { maxNesting: maxDepth, trustTransferFields: trustsTransferFields } = context.live.settings;
  const body = scanInline(received, maxDepth);
  if (!body) {
    return context.largeBodies
      .read(endpoint, received, { maxDepth, trustsTransferFields })
      .then((large) => planFound(context, request, { ...large, received, acceptedMs }));
  }
  const view = viewRequest(endpoint, body);
  refuseReserved(view, trustsTransferFields);
  return planFound(context, request, { view, received, acceptedMs });
}

interface ReadRequest {
  readonly view: RequestView;
  /** For a body that was read in a thread. */
  readonly readPrompt?: ReadPrompt;
  readonly received: Buffer;
  readonly acceptedMs: number;
}

/** Plans for the one engine that has the response which is gone on with, where there is one. */
function planFound(
  context: RouterContext,
  request: FastifyRequest,
  read: ReadRequest,
): PlannedRequest | Promise<PlannedRequest> {
  const { previousResponseId } = read.view;
  if (previousResponseId === undefined) return planView(context, request, read, undefined);
  return locateResponse(context, previousResponseId, "previous_response_id").then((engine) =>
    planView(context, request, read, engine),
  );
}

function planView(
  context: RouterContext,
  request: FastifyRequest,
  { view, readPrompt, received, acceptedMs }: ReadRequest,
  onlyEngine: string | undefined,
): PlannedRequest | Promise<PlannedRequest> {
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
  const isSplit = endpoint.kind === "generate" && targets.some(({ engine }) => engine.kvTransfer);
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
    letGo: letGoOf(context, request),
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
    split: isSplit ? new SplitSource(view, edit) : undefined,
    bodyWith: parent === undefined && !fieldsFor ? undefined : (set, workMs) => edit(set, { isAnswer: true, workMs }),
    storesResponse: endpoint.id === "responses",
    service,
    acceptedMs,
    answerDueMs: acceptedMs + (context.live.settings.answerMs ?? Number.POSITIVE_INFINITY),
  });
  if (!policyCatalogue[pool.policy.name].readsPrefixes || endpoint.kind !== "generate") return plan(undefined);
  const { reader } = context.prefix;
  const source = { model, parent, endpoint: endpoint.id, body: view.body, estimatedTokens };
  const prompt = readPrompt
    ? reader.readLarge(source, { readPrompt, sizeBytes: received.length })
    : reader.read(source);
  const planRead = (read: PromptBlocks | undefined): PlannedRequest => {
    const { from = "size", tokens = estimatedTokens } = read ?? {};
    trace?.step("tokenize", readMs, { "espalier.prompt_from": from, "espalier.prompt_tokens": tokens });
    return plan(read);
  };
  return prompt instanceof Promise ? prompt.then(planRead) : planRead(prompt);
}

/** Not in a closure of the plan's, which would hold the body as well. */
const letGoOf = (context: RouterContext, request: FastifyRequest) => () => letGoOfBody(context, request);

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
