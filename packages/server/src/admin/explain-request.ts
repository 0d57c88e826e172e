import { type Endpoint, endpoints } from "@espalier/api";
import { EspalierError, silentMeter } from "@espalier/core";
import { closed, type Described, nullable, record, Type } from "@espalier/core/schema";
import type { ChoiceReason } from "@espalier/policies";
import type { ExplainedAdmission } from "@espalier/routing";
import { createSplitMetrics, explainingPolicy, explainSelection, type SplitReason } from "@espalier/routing";
import type { FastifyRequest } from "fastify";
import { planInference } from "../data-plane/inference-routes.ts";
import { describePull, pullReport } from "../decisions/pull-report.ts";
import { type LargeBodies, largeBodyBytes } from "../large-bodies/large-bodies.ts";
import { OverflowBackend, overflowReason } from "../overflow/overflow.ts";
import { keyOfConversation } from "../programs/programs.ts";
import type { PlannedRequest } from "../request/planned-request.ts";
import type { RouterContext } from "../router-context.ts";
import { coldPromptOf } from "../routing/admission-parts.ts";
import { candidateReport, describeCandidates, excluded, whyExcluded } from "./explained-candidates.ts";

const promptReport = closed({
  tokens: Type.Number(),
  /** Number of full blocks looked up; null when the policy ignores prompts. */
  blocks: nullable(Type.Integer()),
  /** Tokens per block. */
  blockSize: nullable(Type.Integer()),
  /** Which tokens are known: all, those of the beginning, or only an estimate from the number of bytes. */
  from: Type.Enum(["tokens", "partial", "bytes", "size"]),
  /** A prompt field of an unknown layout, which counts by its bytes in the body; null for none. */
  unread: nullable(Type.String()),
});

/** What a request with an uncached prompt would evict, and whether it would be parked for that. */
const memoryReport = nullable(
  closed({
    maxColdWaitMs: Type.Number(),
    isParked: Type.Boolean(),
    /**
     * By engine: the share of such a prompt's blocks that would evict blocks likely to be reused. 0 when the engine has
     * free memory or too little is known.
     */
    losses: Type.Array(closed({ key: Type.String(), share: Type.Number() })),
  }),
);

/** Whether a request would be disaggregated, in a pool with KV transfer. */
const splitReport = nullable(
  closed({
    reason: Type.Unsafe<SplitReason>(Type.String()),
    /** The protocol and both targets; null when one engine serves the request. */
    pair: nullable(closed({ protocol: Type.String(), prefill: Type.String(), decode: Type.String() })),
    /** Uncached tokens above which it would be disaggregated; null when not computed. */
    thresholdTokens: nullable(Type.Number()),
  }),
);

/** What the router would do with a request now, and why: the answer of `POST /admin/explain`. Times are in milliseconds. */
export const explanation = closed(
  {
    /** This router's id in the mesh; null when it shares nothing. */
    router: nullable(Type.String()),
    endpoint: Type.String(),
    /** The model's name at engines, after aliases and splits. */
    model: Type.String(),
    policy: Type.String(),
    /** Null when no target is usable, as is `choice`. */
    reason: nullable(Type.Unsafe<ChoiceReason>(Type.String())),
    /**
     * The most likely target for serving it without disaggregation; if `probability` is below 1, the choice is random.
     */
    choice: nullable(closed({ key: Type.String(), probability: Type.Number() })),
    pull: pullReport,
    /** Null in a pool without KV transfer. */
    split: splitReport,
    /** Its admission class; null when admission is off. */
    service: nullable(
      closed({
        class: Type.String(),
        tenant: Type.String(),
        deadlineMs: nullable(Type.Number()),
        isQueued: Type.Boolean({
          description: "Whether the request would queue in the router; the choice assumes its turn is now.",
        }),
      }),
    ),
    overflow: nullable(closed({ backend: Type.String(), reason: Type.Enum(["no_engine", "deadline", "queue"]) }), {
      description: "Overflow backend that would get the request now; null if none would.",
    }),
    /** Null when no class has a max cold wait, or in a pool with KV transfer. */
    memory: memoryReport,
    sessionKey: nullable(Type.String(), { description: "For `prefix` a digest of the conversation's first request." }),
    sessionSource: nullable(Type.String(), { description: "The item of `session-key` that found it." }),
    prompt: promptReport,
    expectedOutputTokens: Type.Number(),
    /** Estimated prefill tokens that other routers sent and engines do not report yet. */
    estimatedPeerTokens: Type.Number(),
    /** Weight of each scorer. */
    weights: record(Type.Number()),
    candidates: Type.Array(candidateReport),
    /** Targets of the model that are not candidates. */
    excluded: Type.Array(excluded),
  },
  { title: "Explanation" },
);

export type Explanation = Described<typeof explanation>;

const noBody = Buffer.alloc(0);
const noneTried: ReadonlySet<string> = new Set();

/**
 * Plans a request as if a client had sent it, and reports where it would go. Sends nothing to engines, except to find
 * an unknown previous response. Charges no load, records no placement, and does not advance a rotation.
 *
 * @param request has a Buffer as its body, and the headers of the request in question
 * @param named the endpoint's id or path; when undefined, the body decides
 * @throws EspalierError as for the request itself
 */
export async function explainRequest(
  context: RouterContext,
  request: FastifyRequest,
  named: string | undefined,
): Promise<Explanation> {
  const body = Buffer.isBuffer(request.body) ? request.body : noBody;
  const endpoint = await endpointOf({ named, headers: request.headers, body }, context.largeBodies);
  const plan = await planInference(context, endpoint, request);
  const { pool, targets, features, onlyEngine } = plan;
  const accepts = context.split.planner.alonePredicate(pool, targets, noneTried);
  const restriction = { tried: noneTried, onlyEngine, accepts };
  const admission = explainAdmission(context, plan);
  const open = targets.filter(({ key }) => !admission.excluded.has(key));
  const explained = explainSelection(context.dryRunSelector, pool, open, plan, restriction);
  const candidates = explained
    ? describeCandidates(context, explained.explanation.candidates, explained.targets, plan.prompt !== undefined)
    : [];
  const among = new Set(explained?.targets);
  const choice = explained && candidates[explained.targets.indexOf(explained.choice)];
  return {
    router: context.mesh?.replica.ports.origin.router ?? null,
    endpoint: plan.endpointId,
    model: pool.model,
    policy: pool.policy.name,
    reason: explained?.explanation.reason ?? null,
    choice: choice ? { key: choice.key, probability: choice.probability } : null,
    pull: describePull(explained?.pull),
    split: explainSplit(context, plan),
    service: serviceOf(context, plan, admission),
    overflow: explainOverflow(context, plan),
    memory: explainMemory(context, plan),
    sessionKey: features.sessionKey ?? (plan.conversation ? keyOfConversation(plan.conversation) : null),
    sessionSource: plan.sessionSource ?? null,
    prompt: promptOf(plan),
    expectedOutputTokens: features.expectedOutputTokens,
    estimatedPeerTokens: explained?.estimatedPeerTokens ?? 0,
    weights: explained?.explanation.weights ?? {},
    candidates,
    excluded: whyExcluded(targets, (target) => among.has(target), {
      admission: admission.excluded,
      onlyEngine,
      assignedRoleOf: context.split.assignedRoleOf,
    }),
  };
}

function explainAdmission(
  { admission }: RouterContext,
  { service, pool, targets, onlyEngine }: PlannedRequest,
): ExplainedAdmission {
  const queue = service && admission.of(pool);
  const { className, deadlineMs } = service ?? {};
  return queue?.explain({ className, deadlineMs, onlyEngine }, targets) ?? { isQueued: false, excluded: new Map() };
}

function serviceOf(
  { admission }: RouterContext,
  { service }: PlannedRequest,
  { isQueued }: ExplainedAdmission,
): Explanation["service"] {
  const { mode, defaultClass } = admission.config;
  if (mode === "off" || !service) return null;
  const { className = defaultClass, tenant, deadlineMs = null } = service;
  return { class: className, tenant, deadlineMs, isQueued };
}

function explainOverflow(context: RouterContext, plan: PlannedRequest): Explanation["overflow"] {
  const reason = overflowReason(context, plan);
  const backend = reason && context.overflow.find(plan, reason);
  return reason && backend instanceof OverflowBackend ? { backend: backend.config.name, reason } : null;
}

function promptOf({ features, prompt, unreadPrompt }: PlannedRequest): Explanation["prompt"] {
  return {
    tokens: features.promptTokens,
    blocks: prompt?.blockCount ?? null,
    blockSize: prompt?.blockSize ?? null,
    from: prompt?.from ?? "size",
    unread: unreadPrompt ?? null,
  };
}

/** @returns null when no class has a max cold wait, or nothing is known */
function explainMemory(context: RouterContext, plan: PlannedRequest): Explanation["memory"] {
  const cold = coldPromptOf(context, plan);
  if (!cold || !plan.service) return null;
  const { classes, defaultClass } = context.admission.config;
  const { className = defaultClass, deadlineMs } = plan.service;
  const settings = classes.find(({ name }) => name === className);
  const hasDeadline = (deadlineMs ?? settings?.targetMs) !== undefined;
  const maxColdWaitMs = hasDeadline ? 0 : (settings?.maxColdWaitMs ?? 0);
  const { promptTokens } = plan.features;
  return {
    maxColdWaitMs,
    isParked: maxColdWaitMs > 0 && !cold.fitsInMemory(plan.targets),
    losses: plan.targets.map((target) => ({ key: target.key, share: cold.lossAt(target, promptTokens) })),
  };
}

const noPairTried = { any: new Set<string>(), prefill: new Set<string>() };

/** @returns null in a pool without KV transfer */
function explainSplit(context: Pick<RouterContext, "split">, plan: PlannedRequest): Explanation["split"] {
  if (!plan.targets.some(({ engine }) => engine.kvTransfer)) return null;
  const planner = context.split.planner.dryRun(createSplitMetrics(silentMeter));
  const pool = { ...plan.pool, policy: explainingPolicy(plan.pool.policy) };
  const chosen = planner.choose({ ...plan, pool }, noPairTried);
  const { reason } = chosen;
  if (!chosen.protocol) return { reason, pair: null, thresholdTokens: null };
  const { protocol, prefill, decode, thresholdTokens } = chosen;
  return {
    reason,
    pair: { protocol: protocol.name, prefill: prefill.target.key, decode: decode.target.key },
    thresholdTokens,
  };
}

/** What identifies a request's endpoint when its path does not. */
interface Signs {
  /** An endpoint's id or path from the caller. */
  readonly named: string | undefined;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly body: Buffer;
}

/** Endpoints by a distinctive field of their bodies; `messages` is checked first. */
const signs: readonly (readonly [field: string, id: Endpoint["id"]])[] = [
  ["prompt", "completions"],
  ["prompt_embeds", "completions"],
  ["input", "responses"],
  ["text", "generate"],
  ["input_ids", "generate"],
  ["token_ids", "token_generate"],
];

const tellingFields = ["messages", "system", ...signs.map(([field]) => field)];

/**
 * The endpoint of a request: the named one, else the one whose bodies look like this. A body with `messages` is a chat.
 * It is Anthropic's kind if it also has `system`, or if the client's headers say so.
 *
 * @param largeBodies reads bodies too large for the event loop
 * @throws EspalierError `invalid_value` for an unknown name, or when the body does not identify an endpoint
 */
export async function endpointOf(
  { named, headers, body }: Signs,
  largeBodies: Pick<LargeBodies, "readFields">,
): Promise<Endpoint> {
  if (named !== undefined) {
    const found = endpoints.find(({ id, path }) => id === named || path === named);
    if (found) return found;
    const known = [...new Set(endpoints.map(({ id }) => id))].join(", ");
    throw new EspalierError("invalid_value", `Unknown endpoint ${JSON.stringify(named)}; expected one of ${known}.`, {
      param: "endpoint",
    });
  }
  const fields = body.length > largeBodyBytes ? await largeBodies.readFields(body, tellingFields) : fieldsOf(body);
  const isAnthropic = fields.includes("system") || headers["anthropic-version"] !== undefined;
  const id = fields.includes("messages")
    ? isAnthropic
      ? "messages"
      : "chat"
    : signs.find(([field]) => fields.includes(field))?.[1];
  const endpoint = endpoints.find((one) => one.id === id);
  if (endpoint) return endpoint;
  throw new EspalierError("invalid_value", "The body fits several endpoints; name one in `endpoint`.", {
    param: "endpoint",
  });
}

/** Once the endpoint is known, the body is read again and refused if invalid. */
function fieldsOf(body: Buffer): readonly string[] {
  try {
    const parsed: unknown = JSON.parse(body.toString("utf8"));
    return typeof parsed === "object" && parsed !== null ? Object.keys(parsed) : [];
  } catch {
    throw new EspalierError("invalid_json");
  }
}
