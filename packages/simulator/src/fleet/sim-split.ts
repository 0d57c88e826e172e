import type { Clock } from "@espalier/common";
import {
  createDecodePolicy,
  createPrefillPolicy,
  createRoleBalance,
  createRoleDuties,
  createTransferCost,
  decideSplit,
  type ProbedPolicy,
  probePolicy,
  promptWorkMs,
  type RoleBalance,
  type RoleDuties,
  type SplitDecision,
  type SplitThresholdOptions,
  type TransferCost,
} from "@espalier/disaggregation";
import type { ImportedPrompt } from "@espalier/engine-model";
import type { Policy } from "@espalier/policies";
import type { RoutedRequest, SelectablePool, Selection, TargetSelector } from "@espalier/routing";
import type { SimTarget } from "./sim-target.ts";

/** What moving KV blocks from any engine to any other one takes. */
export type KvLink = Pick<ImportedPrompt, "setupMs" | "msPerToken">;

/** How requests are split between two engines: in two legs one after the other, as NIXL does. */
export interface SplitSettings extends SplitThresholdOptions {
  readonly link: KvLink;
  /** Whether engines of role `both` keep to one side each, as many as the mix of requests asks for. */
  readonly appliesBalance?: boolean;
}

/** Two engines for one request. */
export interface SimPair {
  readonly prefill: Selection<SimTarget>;
  readonly decode: Selection<SimTarget>;
}

export interface SimSplitOptions {
  readonly settings: SplitSettings;
  readonly clock: Clock;
  readonly pool: SelectablePool;
  readonly selector: TargetSelector;
  /** One whose choices nothing is expected to follow from. */
  readonly quietSelector: TargetSelector;
}

interface ServedBySim {
  readonly promptTokens: number;
  readonly uncachedTokens: number;
  readonly outputTokens: number;
  readonly heldMs: number;
}

type Lack = "no_prefill_engine" | "no_decode_engine";

/** What a router needs to serve requests with two engines, by the decision of the real one. */
export class SimSplit {
  readonly link: KvLink;
  readonly cost: TransferCost = createTransferCost();
  readonly #options: SimSplitOptions;
  readonly #alone: ProbedPolicy;
  readonly #prefill = probePolicy(createPrefillPolicy());
  readonly #decodePolicy: Policy;
  readonly #balance: RoleBalance;
  readonly #duties: RoleDuties;

  constructor(options: SimSplitOptions) {
    this.link = options.settings.link;
    this.#options = options;
    this.#alone = probePolicy(options.pool.policy);
    this.#decodePolicy = createDecodePolicy(this.cost);
    this.#balance = createRoleBalance(options);
    this.#duties = createRoleDuties(options.clock);
  }

  /** A request has ended. @param heldMs see `ServedTokens` */
  served({ promptTokens, uncachedTokens, outputTokens, heldMs }: ServedBySim): void {
    const prefillMs = promptWorkMs(this.#alone.chosen, { promptTokens, uncachedTokens });
    this.#balance.observe({ uncachedTokens, outputTokens, prefillMs, heldMs });
  }

  choose(
    targets: readonly SimTarget[],
    routed: RoutedRequest,
    tried: ReadonlySet<string>,
  ): SplitDecision<Selection<SimTarget>, SimPair, Lack> {
    const { pool, selector, settings } = this.#options;
    if (settings.appliesBalance) {
      const engines = () => targets.filter(({ usable }) => usable).map(({ engine }) => engine);
      this.#duties.update(engines, () => this.#balance.prefillShare());
    }
    const accepts = this.#alonePredicate(targets, tried);
    const probed = { ...pool, policy: this.#alone.policy };
    return decideSplit<Selection<SimTarget>, SimPair, Lack>(
      {
        promptTokens: routed.features.promptTokens,
        canServeAlone: targets.some((target) => target.usable && servesAlone(target) && !tried.has(target.key)),
        whole: () => selector.select(probed, targets, routed, { tried, accepts }),
        pair: () => this.#findPair(targets, routed, tried),
        seenAlone: this.#alone.chosen,
        seenPrefill: this.#prefill.chosen,
      },
      this.cost,
      settings,
    );
  }

  #findPair(targets: readonly SimTarget[], routed: RoutedRequest, tried: ReadonlySet<string>): SimPair | Lack {
    const { pool, quietSelector } = this.#options;
    const decode = quietSelector.select({ ...pool, policy: this.#decodePolicy }, targets, routed, {
      tried,
      accepts: this.#alonePredicate(targets, tried),
    });
    if (!decode) return "no_decode_engine";
    const prefill = quietSelector.select({ ...pool, policy: this.#prefill.policy }, targets, routed, {
      tried,
      accepts: ({ engine }) =>
        engine !== decode.target.engine && engine.role !== "decode" && this.#duties.allows(engine, "prefill"),
    });
    return prefill ? { prefill, decode } : "no_prefill_engine";
  }

  /** Whoever is there to answer; with nobody else, whoever can. */
  #alonePredicate(targets: readonly SimTarget[], tried: ReadonlySet<string>): (target: SimTarget) => boolean {
    const onDuty = (target: SimTarget): boolean => servesAlone(target) && this.#duties.allows(target.engine, "decode");
    return targets.some((target) => target.usable && onDuty(target) && !tried.has(target.key)) ? onDuty : servesAlone;
  }
}

/** Engines of role `decode` answer alone where they speak NIXL. */
const servesAlone = ({ engine }: SimTarget): boolean => engine.role !== "prefill";

/** @param bytesPerS of a link from one engine to another */
export function kvLinkOf(
  { setupMs, bytesPerS }: { readonly setupMs: number; readonly bytesPerS: number },
  kvBytesPerToken: number,
): KvLink {
  return { setupMs, msPerToken: (1_000 * kvBytesPerToken) / bytesPerS };
}
