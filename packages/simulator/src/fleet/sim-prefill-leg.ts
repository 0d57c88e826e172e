import type { BlockReport } from "@espalier/engine-model";
import type { Placement, PromptWork, RoutedRequest, Selection } from "@espalier/routing";
import type { LoadTicket } from "@espalier/workers";
import type { SimRequest } from "../clients/workload.ts";
import { placeWish } from "./engine-wishes.ts";
import type { AnswerObserver } from "./sim-engine.ts";
import type { SimRouter } from "./sim-router.ts";
import type { SimTarget } from "./sim-target.ts";

export interface SimPrefillLegOptions {
  readonly request: SimRequest;
  readonly routed: RoutedRequest;
  readonly selection: Selection<SimTarget>;
  /** When the request came to the router, by its wall clock. */
  readonly arrivedWallMs: number;
  /** Called once, unless the leg is cancelled before. */
  readonly settled: (isDone: boolean) => void;
}

/** An engine that computes a prompt for another one, and holds it until that one has fetched it. */
export class SimPrefillLeg implements AnswerObserver {
  readonly engine: number;
  /** Prompt tokens that the engine was thought to hold. */
  readonly matchedTokens: number;
  /** Prompt tokens that it held; NaN before it is done. */
  cachedTokens = Number.NaN;
  readonly #router: SimRouter;
  readonly #options: SimPrefillLegOptions;
  readonly #ticket: LoadTicket;
  readonly #work: PromptWork | undefined;
  readonly #placement: Placement | undefined;
  #isOver = false;
  #handedOverMs = Number.NaN;
  #movedTokens = 0;

  constructor(router: SimRouter, options: SimPrefillLegOptions) {
    const { selection, routed, request } = options;
    const { target, matchedTokens, work, activeBlocks } = selection;
    const { scheduler, hopDelayMs } = router.options;
    const { promptTokens, adapter } = routed.features;
    this.#router = router;
    this.#options = options;
    this.engine = target.model.number;
    this.matchedTokens = matchedTokens;
    this.#work = work;
    const workMs = work?.sent() ?? 0;
    const uncachedTokens = Math.max(1, promptTokens - matchedTokens);
    const size = { promptTokens, uncachedTokens, expectedOutputTokens: 1 };
    this.#ticket = target.load.begin({ ...size, workMs, activeBlocks });
    if (adapter !== undefined) target.adapters.sent(adapter);
    this.#placement = routed.prompt && router.view.knowledge.place(target, routed.prompt, matchedTokens);
    const place = placeWish(router.options, request, { arrivedWallMs: options.arrivedWallMs, workMs });
    const wishes = { pinned: true, ...place };
    scheduler.after(hopDelayMs, () => {
      if (!this.#isOver && !target.model.submit({ ...request, outputTokens: 1 }, this, wishes)) this.lost();
    });
  }

  firstToken(): void {}

  progress(): void {}

  finished({ cachedTokens }: Pick<BlockReport, "cachedTokens">): void {
    this.cachedTokens = cachedTokens;
    this.#settle(true);
  }

  lost(): void {
    this.#settle(false);
  }

  /** The decode engine is told where so many tokens are. */
  handedOver(tokens: number): void {
    this.#handedOverMs = this.#router.options.clock.nowMs();
    this.#movedTokens = tokens;
  }

  /** The decode engine has begun to answer: what it waited for is learned. */
  fetched(): void {
    this.#router.split?.cost.observe(this.#movedTokens, this.#router.options.clock.nowMs() - this.#handedOverMs);
  }

  /** Nobody will fetch what is held there any more. */
  release(): void {
    this.#options.selection.target.model.release(this.#options.request);
  }

  /** Ends it at once, wherever it stands. Safe to repeat. */
  cancel(): void {
    this.release();
    if (this.#isOver) return;
    this.#isOver = true;
    this.#options.selection.target.model.abort(this.#options.request);
    this.#ticket.end();
    this.#placement?.withdraw();
  }

  #settle(isDone: boolean): void {
    const { scheduler, hopDelayMs } = this.#router.options;
    scheduler.after(hopDelayMs, () => {
      if (this.#isOver) return;
      this.#isOver = true;
      if (isDone) this.#work?.firstToken();
      if (isDone) this.#ticket.firstToken();
      this.#ticket.end();
      if (isDone) this.#placement?.computed();
      else this.#placement?.withdraw();
      this.#placement?.answered(undefined);
      if (!isDone) this.#options.selection.target.failed();
      this.#options.settled(isDone);
    });
  }
}
