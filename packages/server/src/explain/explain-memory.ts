import { coldPromptOf } from "../admission/memory-watch.ts";
import type { RouterContext } from "../data-plane/router-context.ts";
import type { PlannedRequest } from "../request/planned-request.ts";

/** What a request that is cold everywhere would drive out of engines' memory, and whether this one would wait for that. */
export interface MemoryReport {
  readonly patienceMs: number;
  readonly isHeld: boolean;
  /**
   * By engine: which share of what it takes in with such a prompt would drive out what somebody is expected to come back
   * for. 0 where it has room, or where not enough is known.
   */
  readonly losses: readonly { readonly key: string; readonly share: number }[];
}

/** @returns null where no class has patience, or nothing can be said */
export function explainMemory(context: RouterContext, plan: PlannedRequest): MemoryReport | null {
  const cold = coldPromptOf(context, plan);
  if (!cold || !plan.service) return null;
  const { classes, defaultClass } = context.admission.config;
  const { className = defaultClass, deadlineMs } = plan.service;
  const settings = classes.find(({ name }) => name === className);
  const hasDeadline = (deadlineMs ?? settings?.targetMs) !== undefined;
  const patienceMs = hasDeadline ? 0 : (settings?.patienceMs ?? 0);
  const { promptTokens } = plan.features;
  return {
    patienceMs,
    isHeld: patienceMs > 0 && !cold.mayGo(plan.targets),
    losses: plan.targets.map((target) => ({ key: target.key, share: cold.lossAt(target, promptTokens) })),
  };
}
