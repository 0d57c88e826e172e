import type { KvTransferSpec } from "@espalier/core";
import type { Policy } from "@espalier/policies";
import {
  createPrefillPolicy,
  decideSplit,
  type ProbedPolicy,
  probePolicy,
  promptWorkMs,
  type SplitThresholdOptions,
  type TransferProtocol,
  transferProtocols,
} from "../disaggregation/index.ts";
import type { RoutingTarget } from "../routing-target.ts";
import type { RoutedRequest, SelectablePool, Selection, TargetSelector } from "../select-target.ts";
import type { FleetRoles, ModelRoles } from "./fleet-roles.ts";
import type { SplitMetrics, SplitReason } from "./split-metrics.ts";

type EngineOf = Pick<RoutingTarget["engine"], "role"> & { readonly kvTransfer?: KvTransferSpec | undefined };

/** A target whose engine may transfer KV blocks. */
export interface PairTarget extends RoutingTarget {
  readonly engine: RoutingTarget["engine"] & EngineOf;
}

/** What matters of a request for choosing who serves it. */
export interface PairedRequest<Target extends PairTarget> extends RoutedRequest {
  readonly pool: SelectablePool;
  readonly targets: readonly Target[];
  /** The only engine that can serve it, for instance the one with a stored response. */
  readonly onlyEngine?: string | undefined;
  /** How it can be split into two legs; absent if one engine must serve it. */
  readonly split?: { allows(protocol: TransferProtocol): boolean } | undefined;
}

/** Two engines for one request. */
export interface ChosenPair<Target extends PairTarget> {
  readonly protocol: TransferProtocol;
  readonly prefill: Selection<Target>;
  readonly decode: Selection<Target>;
  readonly reason: "threshold" | "required";
  /** Uncached tokens from which a pair is chosen. */
  readonly thresholdTokens: number;
}

type Sides<Target extends PairTarget> = Pick<ChosenPair<Target>, "protocol" | "prefill" | "decode">;

/** One engine for a request. */
export interface ChosenAlone<Target extends PairTarget> {
  readonly protocol: undefined;
  /** Undefined if it is still to be chosen. */
  readonly whole: Selection<Target> | undefined;
  readonly reason: SplitReason;
}

/** Targets to avoid: for anything, and as the prefill side of a pair. */
export interface TriedTargets {
  readonly any: ReadonlySet<string>;
  readonly prefill: ReadonlySet<string>;
}

/** The work that an answered request gave the engines of each role. */
export interface ServedRequest {
  readonly promptTokens: number;
  /** Prompt tokens that had to be computed. */
  readonly uncachedTokens: number;
  readonly outputTokens: number;
  /** From the first byte of the answer to the last; 0 for a non-streamed answer. */
  readonly writingMs: number;
}

export interface PairPlannerOptions {
  readonly limits: SplitThresholdOptions & { readonly applyRoleBalance: boolean };
  readonly selector: TargetSelector;
  /** For decisions that are not carried out; see `explainSelection`. */
  readonly dryRunSelector: TargetSelector;
  readonly roles: FleetRoles;
  /** The model whose roles apply to a pool: for an adapter, its parent. By default the pool's own model. */
  readonly roleModel?: (model: string) => string;
  readonly metrics: SplitMetrics;
}

/** The protocol by which an engine transfers KV blocks; undefined if it does not. */
function protocolOf({ kvTransfer }: EngineOf): TransferProtocol | undefined {
  return kvTransfer && transferProtocols[kvTransfer.protocol];
}

/** Whether a target can serve a request without another engine. */
export function servesAlone({ engine }: { readonly engine: EngineOf }): boolean {
  if (engine.role === "prefill") return false;
  return engine.role === "both" || (protocolOf(engine)?.decodesAlone ?? true);
}

/** Whether an engine's role lets it take this side of a pair. */
export function takesSide(engine: EngineOf, side: "prefill" | "decode"): boolean {
  return engine.role === side || (engine.role === "both" && (protocolOf(engine)?.pairsBoth ?? false));
}

/** Whether an engine has one role of pairs, or can be assigned one. */
function canBeAssigned(engine: EngineOf): boolean {
  return engine.role !== "both" ? engine.kvTransfer !== undefined : (protocolOf(engine)?.pairsBoth ?? false);
}

/**
 * Decides whether one engine or two serve a request, and which ones. Learns from served requests how many engines each
 * role needs. The router and the fleet simulator decide by this same code.
 */
export class PairPlanner<Target extends PairTarget> {
  readonly metrics: SplitMetrics;
  readonly #options: PairPlannerOptions;
  /** The policy for the prefill engine, probed. */
  readonly #prefill = probePolicy(createPrefillPolicy());
  /** The pools' own policies, probed. */
  readonly #probes = new WeakMap<Policy, ProbedPolicy>();

  constructor(options: PairPlannerOptions) {
    this.#options = options;
    this.metrics = options.metrics;
  }

  /** Makes the same decisions without carrying them out. @param metrics where they are counted */
  dryRun(metrics: SplitMetrics): PairPlanner<Target> {
    const { dryRunSelector } = this.#options;
    return new PairPlanner({ ...this.#options, selector: dryRunSelector, metrics });
  }

  /** Roles of the pool's model, or of the model whose adapter it serves. */
  rolesOf({ model = "" }: SelectablePool): ModelRoles {
    const { roles, roleModel } = this.#options;
    return roles.of(roleModel ? roleModel(model) : model);
  }

  choose(request: PairedRequest<Target>, tried: TriedTargets): ChosenPair<Target> | ChosenAlone<Target> {
    const { targets, pool } = request;
    if (!request.split || request.onlyEngine !== undefined) return alone("unsupported");
    const probe = this.#probeOf(pool);
    this.#assignRoles(pool, targets);
    const accepts = this.alonePredicate(pool, targets, tried.any);
    const probed = { ...pool, policy: probe.policy };
    const chosen = decideSplit<Selection<Target>, Sides<Target>, SplitReason>(
      {
        promptTokens: request.features.promptTokens,
        canServeAlone: canServeAlone(targets, tried.any),
        whole: () => this.#options.selector.select(probed, targets, request, { tried: tried.any, accepts }),
        pair: () => this.#findSides(request, tried),
        seenAlone: probe.chosen,
        seenPrefill: this.#prefill.chosen,
      },
      this.rolesOf(pool).cost,
      this.#options.limits,
    );
    const { pair, reason, thresholdTokens } = chosen;
    if (thresholdTokens !== undefined) this.metrics.threshold(thresholdTokens);
    return pair ? { ...pair, reason, thresholdTokens } : alone(reason, chosen.whole);
  }

  /** @param protocol the required protocol; by default any that can split the request */
  chooseDecode(
    request: PairedRequest<Target>,
    tried: ReadonlySet<string>,
    protocol?: TransferProtocol,
  ): Selection<Target> | undefined {
    const { pool, targets, split } = request;
    const accepts = ({ engine }: Target): boolean => {
      const spoken = protocolOf(engine);
      if (!spoken || (protocol && spoken !== protocol) || !takesSide(engine, "decode")) return false;
      return this.#isAssignedTo(pool, engine, "decode") && (split?.allows(spoken) ?? false);
    };
    const { decodePolicy } = this.rolesOf(pool);
    const { features, prompt } = request;
    const asked = { ...pool, policy: decodePolicy };
    return this.#options.dryRunSelector.select(asked, targets, { features, prompt }, { tried, accepts });
  }

  /**
   * Targets that may serve a request alone: while requests are split, those assigned to decode, if one of them has not been
   * tried.
   */
  alonePredicate(
    pool: SelectablePool,
    targets: readonly Target[],
    tried: ReadonlySet<string>,
  ): (target: Target) => boolean {
    if (!this.#options.limits.applyRoleBalance || !this.rolesOf(pool).isPairing) return servesAlone;
    const isAssigned = (target: Target): boolean =>
      servesAlone(target) && this.#isAssignedTo(pool, target.engine, "decode");
    return targets.some((target) => target.usable && isAssigned(target) && !tried.has(target.key))
      ? isAssigned
      : servesAlone;
  }

  /** The role assigned to an engine of role `both`; undefined if it has both. @param model model that it serves */
  assignedRoleOf(engine: PairTarget["engine"], model: string | undefined): "prefill" | "decode" | undefined {
    const { limits, roles } = this.#options;
    if (!limits.applyRoleBalance || model === undefined || !canBeAssigned(engine)) return undefined;
    return roles.of(model).assignment.assignedRoleOf(engine);
  }

  /** Adds the work of an answered request to the role balance, and publishes how many engines each role needs. */
  served(
    { pool, targets }: Pick<PairedRequest<Target>, "pool" | "targets">,
    answering: Target | undefined,
    { promptTokens, uncachedTokens, outputTokens, writingMs }: ServedRequest,
  ): void {
    const { blockCount = Number.NaN, blockSize = Number.NaN } = answering?.signals ?? {};
    const roles = this.rolesOf(pool);
    const { balance } = roles;
    balance.observe({
      uncachedTokens,
      outputTokens,
      prefillMs: promptWorkMs(this.#probeOf(pool).chosen, { promptTokens, uncachedTokens }),
      heldMs: ((promptTokens + outputTokens) / (blockCount * blockSize)) * writingMs,
    });
    roles.tell();
    const engines = new Set(targets.map(({ engine }) => engine)).size;
    this.metrics.balance(pool.model ?? "", balance.prefillShare(), balance.prefillEngines(engines));
  }

  /** The best decode engine and the best prefill engine that can transfer to it, or which of them is missing. */
  #findSides(request: PairedRequest<Target>, tried: TriedTargets): Sides<Target> | SplitReason {
    const { pool, targets } = request;
    const decode = this.chooseDecode(request, tried.any);
    if (!decode) return hasSplittable(request) ? "no_decode_engine" : "unsupported";
    const { engine } = decode.target;
    const protocol = protocolOf(engine);
    if (!protocol) return "unsupported";
    const accepts = (target: Target): boolean =>
      target.engine !== engine &&
      protocolOf(target.engine) === protocol &&
      takesSide(target.engine, "prefill") &&
      this.#isAssignedTo(pool, target.engine, "prefill") &&
      !tried.prefill.has(target.key);
    const choosing = { ...pool, policy: this.#prefill.policy };
    const { features, prompt } = request;
    const asked = { features, prompt, canPull: request.canPull === true && protocol.combinesWithPull === true };
    const prefill = this.#options.dryRunSelector.select(choosing, targets, asked, { tried: tried.any, accepts });
    return prefill ? { protocol, prefill, decode } : "no_prefill_engine";
  }

  #probeOf({ policy }: SelectablePool): ProbedPolicy {
    const known = this.#probes.get(policy) ?? probePolicy(policy);
    this.#probes.set(policy, known);
    return known;
  }

  #isAssignedTo(pool: SelectablePool, engine: PairTarget["engine"], side: "prefill" | "decode"): boolean {
    const { limits } = this.#options;
    return !limits.applyRoleBalance || !canBeAssigned(engine) || this.rolesOf(pool).assignment.allows(engine, side);
  }

  /** Updates the role assignment of engines of role `both`. */
  #assignRoles(pool: SelectablePool, targets: readonly Target[]): void {
    if (!this.#options.limits.applyRoleBalance) return;
    const { assignment, balance } = this.rolesOf(pool);
    const engines = (): PairTarget["engine"][] => {
      const usable = targets.filter((target) => target.usable);
      return [...new Set(usable.map(({ engine }) => engine))].filter(canBeAssigned);
    };
    assignment.update(engines, balance.prefillShare);
    if (assignment.prefillCount !== undefined) this.metrics.assignedPrefill(pool.model ?? "", assignment.prefillCount);
  }
}

/** Whether a usable, untried target could serve a request alone. */
export function canServeAlone(targets: readonly PairTarget[], tried: ReadonlySet<string>): boolean {
  return targets.some((target) => target.usable && servesAlone(target) && !tried.has(target.key));
}

function alone<Target extends PairTarget>(reason: SplitReason, whole?: Selection<Target>): ChosenAlone<Target> {
  return { protocol: undefined, whole, reason };
}

function hasSplittable({ targets, split }: PairedRequest<PairTarget>): boolean {
  return targets.some(({ engine }) => {
    const protocol = protocolOf(engine);
    return protocol !== undefined && (split?.allows(protocol) ?? false);
  });
}
