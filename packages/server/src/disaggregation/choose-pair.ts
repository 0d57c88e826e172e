import { decideSplit, isSplittable, type TransferProtocol } from "@espalier/disaggregation";
import type { Selection } from "@espalier/routing";
import type { Target } from "@espalier/workers";
import type { PlannedRequest } from "../data-plane/planned-request.ts";
import type { RouterContext } from "../data-plane/router-context.ts";
import { protocolOf, servesAlone, takesSide } from "./pair-roles.ts";
import type { SplitReason } from "./split-metrics.ts";

/** Two engines for one request. */
export interface ChosenPair {
  readonly protocol: TransferProtocol;
  readonly prefill: Selection<Target>;
  readonly decode: Selection<Target>;
  readonly reason: "threshold" | "required";
  /** Uncached tokens from which on a pair was to be taken. */
  readonly thresholdTokens: number;
}

type Sides = Pick<ChosenPair, "protocol" | "prefill" | "decode">;

/** One engine for a request. */
export interface ChosenAlone {
  readonly protocol: undefined;
  /** Undefined when it is still to be chosen. */
  readonly whole: Selection<Target> | undefined;
  readonly reason: SplitReason;
}

/** Targets that are not to be taken: for anything, and as the prefill side of a pair. */
export interface TriedTargets {
  readonly any: ReadonlySet<string>;
  readonly prefill: ReadonlySet<string>;
}

/** Decides whether one engine or two serve a request, and which. */
export function choosePair(
  context: RouterContext,
  plan: PlannedRequest,
  tried: TriedTargets,
): ChosenPair | ChosenAlone {
  const { split, selector } = context;
  const { targets, pool } = plan;
  if (!plan.split || plan.onlyEngine !== undefined) return alone("unsupported");
  const probe = split.probeOf(pool);
  split.updateDuties(pool, targets);
  const accepts = split.alonePredicate(pool, targets, tried.any);
  const probed = { ...pool, policy: probe.policy };
  const chosen = decideSplit<Selection<Target>, Sides, SplitReason>(
    {
      promptTokens: plan.features.promptTokens,
      canServeAlone: targets.some((target) => target.usable && servesAlone(target) && !tried.any.has(target.key)),
      whole: () => selector.select(probed, targets, plan, { tried: tried.any, accepts }),
      pair: () => findPair(context, plan, tried),
      seenAlone: probe.chosen,
      seenPrefill: split.prefillProbe.chosen,
    },
    split.rolesOf(pool).cost,
    split.options,
  );
  const { pair, reason, thresholdTokens } = chosen;
  if (thresholdTokens !== undefined) split.metrics.threshold(thresholdTokens);
  return pair ? { ...pair, reason, thresholdTokens } : alone(reason, chosen.whole);
}

function alone(reason: SplitReason, whole?: Selection<Target>): ChosenAlone {
  return { protocol: undefined, whole, reason };
}

/** The best decode engine, and the best prefill engine that can hand over to it; or what there is none of. */
function findPair(context: RouterContext, plan: PlannedRequest, tried: TriedTargets): Sides | SplitReason {
  const { split, quietSelector } = context;
  const decode = chooseDecode(context, plan, tried.any);
  if (!decode) return hasSplittable(plan) ? "no_decode_engine" : "unsupported";
  const { engine } = decode.target;
  const protocol = protocolOf(engine);
  if (!protocol) return "unsupported";
  const accepts = (target: Target): boolean =>
    target.engine !== engine &&
    protocolOf(target.engine) === protocol &&
    takesSide(target.engine, "prefill") &&
    split.isOnDuty(plan.pool, target.engine, "prefill") &&
    !tried.prefill.has(target.key);
  const { policy } = split.prefillProbe;
  const prefill = quietSelector.select({ ...plan.pool, policy }, plan.targets, plan, { tried: tried.any, accepts });
  return prefill ? { protocol, prefill, decode } : "no_prefill_engine";
}

/** @param protocol the one that has to be spoken; any that the request can be split in unless given */
export function chooseDecode(
  { split, quietSelector }: RouterContext,
  plan: PlannedRequest,
  tried: ReadonlySet<string>,
  protocol?: TransferProtocol,
): Selection<Target> | undefined {
  const accepts = ({ engine }: Target): boolean => {
    const spoken = protocolOf(engine);
    if (!spoken || (protocol && spoken !== protocol) || !takesSide(engine, "decode")) return false;
    if (!split.isOnDuty(plan.pool, engine, "decode")) return false;
    return plan.split !== undefined && isSplittable(plan.split.view, spoken);
  };
  return quietSelector.select({ ...plan.pool, policy: split.rolesOf(plan.pool).decodePolicy }, plan.targets, plan, {
    tried,
    accepts,
  });
}

function hasSplittable({ targets, split }: PlannedRequest): boolean {
  return targets.some(({ engine }) => {
    const protocol = protocolOf(engine);
    return split !== undefined && protocol !== undefined && isSplittable(split.view, protocol);
  });
}
