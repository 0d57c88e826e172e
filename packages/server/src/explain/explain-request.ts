import type { ChoiceReason, PolicyName } from "@espalier/policies";
import { explainSelection, type PromptBlocks } from "@espalier/routing";
import type { FastifyRequest } from "fastify";
import { planInference } from "../data-plane/inference-routes.ts";
import type { RouterContext } from "../data-plane/router-context.ts";
import type { PlannedRequest } from "../request/planned-request.ts";
import { endpointOf } from "./endpoint-of.ts";
import { explainMemory, type MemoryReport } from "./explain-memory.ts";
import { explainSplit, type SplitReport } from "./explain-split.ts";
import { type CandidateReport, describeCandidates } from "./explained-candidates.ts";
import { type LeftOut, whyLeftOut } from "./why-left-out.ts";

/** What the router would do with a request now and why, as plain JSON: `POST /admin/explain`. Times in milliseconds. */
export interface RequestReport {
  /** This router's id among the others; null for one that shares nothing. */
  readonly router: string | null;
  readonly endpoint: string;
  /** As engines serve it, after aliases and splits. */
  readonly model: string;
  readonly policy: PolicyName;
  /** Null, with the choice, where no target is usable. */
  readonly reason: ChoiceReason | null;
  /** Of those that serve a request alone the likeliest; where `probability` is below 1 chance decides. */
  readonly choice: { readonly key: string; readonly probability: number } | null;
  /** Whether two engines would serve it in place of that one; null where engines do not work together. */
  readonly split: SplitReport | null;
  /** What it may wait for; null where every request is sent at once. */
  readonly service: { readonly class: string; readonly tenant: string; readonly deadlineMs: number | null } | null;
  /** Whether it would wait for memory; null where no class has patience, or two engines may serve it. */
  readonly memory: MemoryReport | null;
  readonly sessionKey: string | null;
  readonly prompt: PromptReport;
  readonly expectedOutputTokens: number;
  /** Prefill tokens that other routers are expected to have sent without this one knowing yet. */
  readonly unseenTokens: number;
  /** What each scorer's number is multiplied with. */
  readonly weights: Readonly<Record<string, number>>;
  readonly candidates: readonly CandidateReport[];
  /** Targets that serve the model and are no candidates. */
  readonly leftOut: readonly LeftOut[];
}

export interface PromptReport {
  readonly tokens: number;
  /** Full blocks that were looked up; null where the policy does not look at prompts. */
  readonly blocks: number | null;
  /** Tokens of a block. */
  readonly blockSize: number | null;
  /** How the tokens are known: all of them, those of the beginning, or by the number of bytes. */
  readonly from: PromptBlocks["from"] | "size";
}

const noBody = Buffer.alloc(0);
const noneTried: ReadonlySet<string> = new Set();

/**
 * Plans a request as if it had come from a client, and says where it would go. Nothing is sent to an engine, but for
 * the question who holds a previous response that this router has not heard of; no load is charged, no placement
 * noted, no turn of a rotation taken.
 *
 * @param request its body is a Buffer, its headers are those of the request in question
 * @param named the endpoint's id or path; guessed of the body when undefined
 * @throws EspalierError as the request itself would be refused
 */
export async function explainRequest(
  context: RouterContext,
  request: FastifyRequest,
  named: string | undefined,
): Promise<RequestReport> {
  const body = Buffer.isBuffer(request.body) ? request.body : noBody;
  const endpoint = await endpointOf({ named, headers: request.headers, body }, context.largeBodies);
  const plan = await planInference(context, endpoint, request);
  const { pool, targets, features, onlyEngine } = plan;
  const accepts = context.split.planner.alonePredicate(pool, targets, noneTried);
  const restriction = { tried: noneTried, onlyEngine, accepts };
  const explained = explainSelection(context.quietSelector, pool, targets, plan, restriction);
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
    split: explainSplit(context, plan) ?? null,
    service: serviceOf(context, plan),
    memory: explainMemory(context, plan),
    sessionKey: features.sessionKey ?? null,
    prompt: promptOf(plan),
    expectedOutputTokens: features.expectedOutputTokens,
    unseenTokens: explained?.unseenTokens ?? 0,
    weights: explained?.explanation.weights ?? {},
    candidates,
    leftOut: whyLeftOut(targets, (target) => among.has(target), { onlyEngine, dutyOf: context.split.dutyOf }),
  };
}

function serviceOf({ admission }: RouterContext, { service }: PlannedRequest): RequestReport["service"] {
  const { isOn, defaultClass } = admission.config;
  if (!isOn || !service) return null;
  const { className = defaultClass, tenant, deadlineMs = null } = service;
  return { class: className, tenant, deadlineMs };
}

function promptOf({ features, prompt }: PlannedRequest): PromptReport {
  return {
    tokens: features.promptTokens,
    blocks: prompt?.blockCount ?? null,
    blockSize: prompt?.blockSize ?? null,
    from: prompt?.from ?? "size",
  };
}
