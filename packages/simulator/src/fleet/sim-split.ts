import {
  createDecodePolicy,
  createPrefillPolicy,
  createTransferCost,
  decideSplit,
  type ProbedPolicy,
  probePolicy,
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
}

/** Two engines for one request. */
export interface SimPair {
  readonly prefill: Selection<SimTarget>;
  readonly decode: Selection<SimTarget>;
}

export interface SimSplitOptions {
  readonly settings: SplitSettings;
  readonly pool: SelectablePool;
  readonly selector: TargetSelector;
  /** One whose choices nothing is expected to follow from. */
  readonly quietSelector: TargetSelector;
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

  constructor(options: SimSplitOptions) {
    this.link = options.settings.link;
    this.#options = options;
    this.#alone = probePolicy(options.pool.policy);
    this.#decodePolicy = createDecodePolicy(this.cost);
  }

  choose(
    targets: readonly SimTarget[],
    routed: RoutedRequest,
    tried: ReadonlySet<string>,
  ): SplitDecision<Selection<SimTarget>, SimPair, Lack> {
    const { pool, selector, settings } = this.#options;
    const probed = { ...pool, policy: this.#alone.policy };
    return decideSplit<Selection<SimTarget>, SimPair, Lack>(
      {
        promptTokens: routed.features.promptTokens,
        canServeAlone: targets.some((target) => target.usable && servesAlone(target) && !tried.has(target.key)),
        whole: () => selector.select(probed, targets, routed, { tried, accepts: servesAlone }),
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
      accepts: servesAlone,
    });
    if (!decode) return "no_decode_engine";
    const prefill = quietSelector.select({ ...pool, policy: this.#prefill.policy }, targets, routed, {
      tried,
      accepts: ({ engine }) => engine !== decode.target.engine && engine.role !== "decode",
    });
    return prefill ? { prefill, decode } : "no_prefill_engine";
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
