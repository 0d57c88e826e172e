import type { BlockReport } from "@espalier/engine-model";
import type { Dispatch, PrefillOutcome } from "@espalier/routing";
import type { SimRequest } from "../clients/workload.ts";
import { placeWish } from "./engine-wishes.ts";
import type { AnswerObserver } from "./sim-engine.ts";
import type { SimRouter } from "./sim-router.ts";
import type { SimTarget } from "./sim-target.ts";

export interface SimPrefillLegOptions {
  readonly request: SimRequest;
  readonly dispatch: Dispatch<SimTarget>;
  /** When the request came to the router, by its wall clock. */
  readonly arrivedWallMs: number;
  /** Called once, unless the leg is cancelled before. */
  readonly settled: (outcome: PrefillOutcome) => void;
}

/** An engine that computes a prompt for another one, and holds it until that one has fetched it. */
export class SimPrefillLeg implements AnswerObserver {
  /** Prompt tokens that the engine held; NaN before it is done. */
  cachedTokens = Number.NaN;
  readonly #router: SimRouter;
  readonly #options: SimPrefillLegOptions;
  #isOver = false;

  constructor(router: SimRouter, options: SimPrefillLegOptions) {
    const { dispatch, request, arrivedWallMs } = options;
    const { target, workMs } = dispatch;
    const { scheduler, hopDelayMs } = router.options;
    this.#router = router;
    this.#options = options;
    if (request.adapter !== undefined) target.adapters.sent(request.adapter);
    const wishes = { pinned: true, ...placeWish(router.options, request, { arrivedWallMs, workMs }) };
    scheduler.after(hopDelayMs, () => {
      if (!this.#isOver && !target.model.submit({ ...request, outputTokens: 1 }, this, wishes)) this.lost();
    });
  }

  get engine(): number {
    return this.#options.dispatch.target.model.number;
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

  /** Nobody will fetch what is held there any more. */
  release(): void {
    this.#options.dispatch.target.model.release(this.#options.request);
  }

  /** Ends it at once, wherever it stands. Safe to repeat. */
  cancel(): void {
    this.release();
    if (this.#isOver) return;
    this.#isOver = true;
    this.#options.dispatch.target.model.abort(this.#options.request);
  }

  #settle(isDone: boolean): void {
    const { scheduler, hopDelayMs } = this.#router.options;
    scheduler.after(hopDelayMs, () => {
      if (this.#isOver) return;
      this.#isOver = true;
      if (!isDone) this.#options.dispatch.target.failed();
      this.#options.settled({ isDone });
    });
  }
}
