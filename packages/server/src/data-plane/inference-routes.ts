import {
  type Endpoint,
  editBody,
  endpoints,
  type FoundSession,
  findConversation,
  findParentAgent,
  findSession,
  isResumable,
  nameOfSource,
  prefixSource,
  type RequestView,
  viewRequest,
} from "@espalier/api";
import { EspalierError } from "@espalier/core";
import type { EngineRecord } from "@espalier/engines";
import {
  expectedOutputTokens,
  findTransferField,
  type PromptBlocks,
  pullProtocols,
  sessionScope,
} from "@espalier/routing";
import type { FastifyInstance } from "fastify";
import { largeBodyBytes, type ReadPrompt, scanInline } from "../large-bodies/large-bodies.ts";
import { readForwardedBody } from "../large-bodies/read-forwarded-body.ts";
import { refuseReserved } from "../large-bodies/reserved-fields.ts";
import { planOverflow } from "../overflow/overflow.ts";
import { saltOf } from "../prefix/prompt-reader.ts";
import { releaseBody } from "../request/body-budget.ts";
import { engineHeader, findEngine } from "../request/named-engine.ts";
import { type BodyFields, type ClientRequest, type PlannedRequest, SplitSource } from "../request/planned-request.ts";
import { describeRequest, type RequestTrace } from "../request/request-trace.ts";
import type { RouterContext } from "../router-context.ts";
import { resolvePool } from "../routing/resolve-pool.ts";
import { planService } from "../routing/service-class.ts";
import { answer, bytesPerToken, engineHead, planForward } from "../serving/answer-request.ts";
import { locateResponse } from "./stored-responses.ts";

const noBody = Buffer.alloc(0);

/** Registers every path whose requests are routed to an engine by their body. */
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
 * Plans a request up to the choice of an engine.
 *
 * @throws EspalierError for a request that cannot be sent to an engine
 */
export function planInference(
  context: RouterContext,
  endpoint: Endpoint,
  request: ClientRequest,
): PlannedRequest | Promise<PlannedRequest> {
  const acceptedMs = context.clock.nowMs();
  const received = Buffer.isBuffer(request.body) ? request.body : noBody;
  const { limits, trustTransferFields: trustsTransferFields } = context.live.current;
  const maxDepth = limits.maxNesting;
  const body = scanInline(received, maxDepth);
  if (!body) {
    return context.largeBodies
      .read(endpoint, received, { maxDepth, trustsTransferFields })
      .then((large) => planFound(context, request, { ...large, received, acceptedMs }));
  }
  const view = viewRequest(endpoint, body);
  if (!trustsTransferFields) refuseReserved(findTransferField(view.body));
  return planFound(context, request, { view, received, acceptedMs });
}

interface ReadRequest {
  readonly view: RequestView;
  /** For a body that was read in the worker thread. */
  readonly readPrompt?: ReadPrompt;
  readonly received: Buffer;
  readonly acceptedMs: number;
}

/**
 * A framework that repeats a run names the engine of each request, by id or URL.
 *
 * @throws EspalierError `engine_not_found`
 */
function namedEngine({ fleet }: RouterContext, named: string): EngineRecord {
  const engine = findEngine(
    fleet.engines.filter(({ state }) => state !== "removed"),
    named,
  );
  if (engine) return engine;
  throw new EspalierError("engine_not_found", `The engine that the request names in \`${engineHeader}\` is gone.`);
}

/** A request that continues a stored response goes to the engine that has it. */
function planFound(
  context: RouterContext,
  request: ClientRequest,
  read: ReadRequest,
): PlannedRequest | Promise<PlannedRequest> {
  const { previousResponseId } = read.view;
  const named = request.isRollout ? request.headers[engineHeader] : undefined;
  if (typeof named === "string") return planView(context, request, read, namedEngine(context, named).id);
  if (previousResponseId === undefined) return planView(context, request, read, undefined);
  return locateResponse(context, previousResponseId, "previous_response_id").then((engine) =>
    planView(context, request, read, engine),
  );
}

function planView(
  context: RouterContext,
  request: ClientRequest,
  read: ReadRequest,
  onlyEngine: string | undefined,
): PlannedRequest | Promise<PlannedRequest> {
  const { view, readPrompt, received, acceptedMs } = read;
  const { endpoint } = view;
  const session = findSession(context.live.current.sessionKey, request.headers, view);
  const sessionKey = session?.key;
  const named = { model: request.modelName ?? view.model, adapter: view.adapter, sessionKey };
  const api = { endpoint: endpoint.id, path: endpoint.path };
  const { model, pool, targets, parent, serves } = resolvePool(context, named, api);
  const injectsUsage = context.live.current.injectUsage && request.isAnswerSeen !== false;
  const stripUsage = injectsUsage && view.canAddUsage;
  const renamed = view.model !== undefined && view.model !== model;
  const { service, bodyFields, fieldsFor } = planService(context, request, view);
  const edit: SplitSource["edit"] = (set, { isAnswer, workMs }) =>
    editBody(received, view, {
      model: renamed ? model : undefined,
      includeUsage: stripUsage && isAnswer ? true : undefined,
      set: withSet(fieldsFor?.(workMs) ?? bodyFields, set),
    });
  const body = edit(undefined, wholeAnswer);
  // A request without a session key may continue a conversation: see `Programs`.
  const mayContinue = !(session || readPrompt) && context.live.current.sessionKey.includes(prefixSource);
  const scope =
    session || mayContinue ? sessionScope(service?.tenant ?? request.apiKeyName ?? "", saltOf(view.body)) : undefined;
  const conversation = mayContinue
    ? findConversation(view, `${model}\n${scope ?? ""}\n`, context.programs.isBeginning)
    : undefined;
  const overflow = onlyEngine === undefined ? planOverflow(context, request, read, model, service) : undefined;
  const estimatedTokens = Math.ceil(view.promptBytes / bytesPerToken);
  const isSplit = endpoint.kind === "generate" && targets.some(({ engine }) => engine.kvTransfer);
  const canPull = targets.some(
    ({ engine }) => engine.kvPull && pullProtocols[engine.kvPull.protocol].endpoints.has(endpoint.id),
  );
  const isAnswered = endpoint.kind === "generate" || endpoint.kind === "media";
  const isRanked = endpoint.id === "generate" && targets.some(({ engine }) => engine.targets.length > 1);
  const isEdited = canPull || isRanked || parent !== undefined || fieldsFor !== undefined;
  const { trace } = request;
  if (trace) describeRequest(trace, view, model);
  const readMs = trace?.nowMs() ?? 0;
  const { recorder } = context;
  const { headers, ownTraceparent } = engineHead(context, request, pool);
  const rollout = request.isRollout
    ? { rid: ridOf(view), namesEngine: request.headers[engineHeader] !== undefined }
    : undefined;
  const { readsPrefixes } = pool.policy;
  const { ttftMs: sloTtftMs, tpotMs: sloTpotMs } = pool.objectivesOf(service?.className);
  const isRead = (readsPrefixes || recorder.isOn) && endpoint.kind === "generate";
  const plan = (blocks: PromptBlocks | undefined): PlannedRequest => {
    const prompt = readsPrefixes ? blocks : undefined;
    if (isRead && trace) traceRead(trace, readMs, blocks, estimatedTokens);
    // Without a spread, which would have the object grow property by property.
    return {
      trace,
      endpointId: endpoint.id,
      family: endpoint.family,
      method: endpoint.method,
      path: endpoint.path + queryOf(request.url),
      headers,
      ownTraceparent,
      body,
      release: releaseOf(context, request),
      requestId: request.id,
      pool,
      targets,
      serves,
      onlyEngine,
      rollout,
      prompt,
      canPull,
      isStreamed: view.stream && request.isAnswerSeen !== false,
      unreadPrompt: view.unreadPrompt,
      sessionSource: (session || conversation) && nameOfSource(session?.source ?? prefixSource),
      parentKey: session?.parent,
      conversation,
      recordedPrompt: recorder.isOn ? blocks : undefined,
      recordedAgent: recorder.isOn ? agentOf(session, request.headers) : undefined,
      features: {
        promptTokens: prompt?.tokens ?? estimatedTokens,
        expectedOutputTokens: isAnswered ? expectedOutputTokens(view) : 0,
        sessionKey,
        sessionScope: session || conversation ? scope : undefined,
        prefixKey: prompt && prefixKeyOf(prompt, pool.policy.prefixKeyTokens),
        adapter: parent === undefined ? undefined : model,
        sloTtftMs,
        sloTpotMs,
      },
      stripUsage,
      resumableAt: resumableAt(context, request, read, parent !== undefined || isSplit),
      split: isSplit ? new SplitSource(view, edit) : undefined,
      bodyWith: isEdited ? (set, workMs) => edit(set, { isAnswer: true, workMs }) : undefined,
      storesResponse: endpoint.id === "responses",
      overflow,
      service,
      acceptedMs,
      answerDueMs: acceptedMs + (context.live.current.timeouts.answerMs ?? Number.POSITIVE_INFINITY),
    };
  };
  if (!isRead) return plan(undefined);
  const { reader } = context.prefix;
  const source = { model, parent, endpoint: endpoint.id, body: view.body, estimatedTokens };
  const prompt = readPrompt
    ? reader.readLarge(source, { readPrompt, sizeBytes: received.length })
    : reader.read(source);
  return prompt instanceof Promise ? prompt.then(plan) : plan(prompt);
}

function agentOf(
  session: FoundSession | undefined,
  headers: ClientRequest["headers"],
): PlannedRequest["recordedAgent"] {
  if (session?.agent === undefined) return undefined;
  return { session: session.session, agent: session.agent, parent: findParentAgent(session, headers) };
}

/** Requests of RL frameworks end with what their engine said; adapters and pairs of engines have states of their own. */
function resumableAt(
  { live }: RouterContext,
  { isRollout, isAnswerSeen }: ClientRequest,
  { view, readPrompt, received }: ReadRequest,
  isBound: boolean,
): Endpoint | undefined {
  const { max, maxBytes } = live.current.resume;
  if (max === 0 || isBound || isRollout || isAnswerSeen === false || readPrompt) return undefined;
  return received.length <= maxBytes && isResumable(view) ? view.endpoint : undefined;
}

/** The id that SGLang's API has for a request. Of a batch with several the first. */
function ridOf({ body }: RequestView): string | undefined {
  const node = body.member("rid");
  const rid = node === undefined ? undefined : [body.valueAt(node)].flat()[0];
  return typeof rid === "string" ? rid : undefined;
}

const wholeAnswer = { isAnswer: true, workMs: 0 };

function traceRead(trace: RequestTrace, readMs: number, read: PromptBlocks | undefined, estimatedTokens: number): void {
  const { from = "size", tokens = estimatedTokens } = read ?? {};
  trace.step("tokenize", readMs, { "espalier.prompt_from": from, "espalier.prompt_tokens": tokens });
}

/** Defined outside the plan's closures, which would keep the body alive. */
const releaseOf = (context: RouterContext, request: ClientRequest) => () => releaseBody(context, request);

/** Usually at most one of the two is defined. */
function withSet(fields: BodyFields, set: BodyFields | undefined): BodyFields {
  return set === undefined ? fields : { ...fields, ...set };
}

/** One word of the chain hash at the block where `keyTokens` end, or at the last block of a shorter prompt. */
function prefixKeyOf({ chain, blockCount, blockSize }: PromptBlocks, keyTokens: number): number | undefined {
  const blocks = Math.min(blockCount, Math.max(1, Math.floor(keyTokens / blockSize)));
  return keyTokens > 0 && blocks > 0 ? chain[2 * (blocks - 1)] : undefined;
}

/** Engines get the endpoint's canonical path, since the client's may have escapes or a trailing slash. */
function queryOf(url: string): string {
  const mark = url.indexOf("?");
  return mark < 0 ? "" : url.slice(mark);
}

/**
 * Forwards the configured additional paths. The header `x-espalier-model`, or `model` in a body of JSON or in a form,
 * selects the model; without them it is the only one served.
 *
 * The app does not get ready, by EspalierError `config_invalid`, for a path that the router serves itself or that is listed twice.
 */
export function registerForwardRoutes(app: FastifyInstance, context: RouterContext): void {
  // In their own turn: paths of uploads, which have one too, are there by then.
  app.register(async (forwarded) => {
    for (const path of context.live.current.forwardPaths) {
      try {
        forwarded.route({
          method: ["GET", "POST", "PUT", "PATCH", "DELETE"],
          // A colon would begin a parameter.
          url: path.replaceAll(":", "::"),
          config: { family: "openai", endpointId: "forwarded", anyBody: true },
          handler: (request, reply) => answer(context, request, reply, "openai", () => plan(context, request)),
        });
      } catch (error) {
        throw new EspalierError("config_invalid", `forward-paths: ${path} is served already`, { cause: error });
      }
    }
  });
}

/** Dot segments, including escaped ones: an engine could resolve them to a path that is not listed. */
const dotSegment = /(?:\/|\\|%2f|%5c)(?:\.|%2e){1,2}(?:\/|\\|%2f|%5c|$)/i;

const pathOf = (url: string): string => url.slice(0, url.length - queryOf(url).length);

function plan(context: RouterContext, request: ClientRequest): PlannedRequest | Promise<PlannedRequest> {
  if (dotSegment.test(pathOf(request.url))) throw new EspalierError("path_not_found");
  const passed = planForward(context, request);
  const planFor = (model: string | undefined): PlannedRequest => {
    const api = { endpoint: "forwarded", path: pathOf(request.url), written: model } as const;
    const { pool, targets, serves } = resolvePool(context, { model }, api);
    const head = engineHead(context, request, pool);
    return { ...passed, ...head, endpointId: "forwarded", pool, targets, serves, onlyEngine: undefined };
  };
  const header = request.headers["x-espalier-model"];
  const named = typeof header === "string" ? header : undefined;
  const model = readForwarded(context, request, passed.body[0], named);
  return model instanceof Promise ? model.then(planFor) : planFor(model);
}

/**
 * Reads what a router needs of a request at one of `forward-paths`.
 *
 * @param named the model that a header names, before the body's
 * @throws EspalierError as `readForwardedBody` does
 */
export function readForwarded(
  { largeBodies, live }: RouterContext,
  { headers }: Pick<ClientRequest, "headers">,
  body: Buffer | undefined,
  named: string | undefined,
): string | undefined | Promise<string | undefined> {
  if (!body) return named;
  const forwarded = {
    contentType: headers["content-type"],
    trustsTransferFields: live.current.trustTransferFields,
  };
  if (body.length > largeBodyBytes) {
    return largeBodies.readForwarded(body, forwarded).then((model) => named ?? model);
  }
  const model = readForwardedBody(body, forwarded);
  return named ?? model;
}

/** One entry of `GET /v1/models`. */
interface ListedModel {
  readonly id: string;
  readonly object: "model";
  readonly created: number;
  readonly owned_by: string;
  readonly root?: string;
  readonly parent?: string | null;
  readonly max_model_len?: number;
}

/** Registers the list of models: those of all engines, and the other names that lead to one of them. */
export function registerModelRoutes(app: FastifyInstance, context: RouterContext): void {
  app.get("/v1/models", async () => ({ object: "list", data: listModels(context) }));
  app.get<{ Params: { "*": string } }>("/v1/models/*", async (request) => {
    const id = request.params["*"];
    const found = listModels(context).find((model) => model.id === id);
    if (!found) throw new EspalierError("model_not_found", `The model ${JSON.stringify(id)} does not exist.`);
    return found;
  });
}

function listModels({ fleet, live: { modelRouter } }: RouterContext): readonly ListedModel[] {
  const served = new Map<string, ListedModel>(
    fleet.models().map((model) => [
      model.id,
      {
        id: model.id,
        object: "model",
        created: model.created,
        owned_by: model.owned_by,
        ...(model.root === undefined ? {} : { root: model.root, parent: model.parent ?? null }),
        ...(model.parent === undefined ? {} : { parent: model.parent }),
        ...(model.max_model_len === undefined ? {} : { max_model_len: model.max_model_len }),
      },
    ]),
  );
  const listed = [...served.values()];
  for (const name of modelRouter.names) {
    const target = modelRouter
      .targetsOf(name)
      .map((model) => served.get(model))
      .find((model) => model !== undefined);
    if (target && !served.has(name)) listed.push({ ...target, id: name });
  }
  return listed;
}
