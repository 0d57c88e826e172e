import type { AdmissionTicket } from "@espalier/admission";
import type { BlockReport } from "@espalier/engine-model";
import {
  ColdPrompt,
  expectedOutputTokens,
  type Placement,
  type PromptBlocks,
  type PromptWork,
  type RoutedRequest,
  type Selection,
} from "@espalier/routing";
import type { LoadTicket } from "@espalier/workers";
import { blockTokens, type SimRequest } from "../clients/workload.ts";
import { placeWish } from "./engine-wishes.ts";
import type { AnswerObserver } from "./sim-engine.ts";
import type { FrontOutcome } from "./sim-front.ts";
import { SimPrefillLeg } from "./sim-prefill-leg.ts";
import type { SimRouter } from "./sim-router.ts";
import type { SimPair } from "./sim-split.ts";
import type { SimTarget } from "./sim-target.ts";

/** One request through a router. */
export class SimExchange implements AnswerObserver {
  readonly #router: SimRouter;
  readonly #request: SimRequest;
  readonly #ended: (outcome: FrontOutcome) => void;
  readonly #routed: RoutedRequest;
  readonly #tried = new Set<string>();
  #target: SimTarget | undefined;
  #ticket: LoadTicket | undefined;
  #work: PromptWork | undefined;
  #placement: Placement | undefined;
  #admitted: AdmissionTicket | undefined;
  /** Another engine computes the prompt, or has computed it, for the one that answers. */
  #leg: SimPrefillLeg | undefined;
  /** Keeps the decode engine's place meanwhile. */
  #reservation: LoadTicket | undefined;
  /** A request whose pair has failed is served by one engine. */
  #maySplit = true;
  #predictedTokens = 0;
  #firstTokenMs = Number.NaN;
  #isOver = false;
  readonly #arrivedWallMs: number;

  constructor(router: SimRouter, request: SimRequest, ended: (outcome: FrontOutcome) => void) {
    const { promptTokens, session, adapter } = request;
    this.#router = router;
    this.#request = request;
    this.#ended = ended;
    this.#arrivedWallMs = router.options.clock.wallMs();
    const features = {
      promptTokens,
      expectedOutputTokens: expectedOutputTokens(request),
      sessionKey: `session-${session}`,
      prefixKey: prefixKeyOf(request, router.options.policy.prefixKeyTokens),
      adapter,
    };
    this.#routed = { features, prompt: router.readsPrefixes ? promptOf(request) : undefined };
  }

  /** Goes to an engine, or waits until one has room. */
  enter(): void {
    const { admission, coldPrompts, targets } = this.#router;
    if (!admission) {
      this.#attempt(targets);
      return;
    }
    const { session, className, tenant = `session-${session}` } = this.#request;
    const { promptTokens, expectedOutputTokens } = this.#routed.features;
    const request = { className, tenant, promptTokens, expectedOutputTokens };
    const cold = coldPrompts && new ColdPrompt<SimTarget>(coldPrompts, this.#routed, { tried: this.#tried });
    if (this.#routed.prompt) coldPrompts?.watch.arrived(this.#routed.prompt);
    const free = { sizeBytes: 0, deadlineMs: undefined, onlyEngine: undefined };
    this.#admitted = admission.enter(
      { ...request, ...free },
      {
        targets: () => targets,
        mayGo: () => cold?.mayGo(targets) ?? true,
        admitted: (open, ticket) => {
          this.#admitted = ticket;
          this.#attempt(cold?.among(open) ?? open);
        },
        refused: ({ message }) => this.#finish(Number.NaN, message),
      },
    );
  }

  #attempt(targets: readonly SimTarget[]): void {
    const { selector, pool, split } = this.#router;
    const chosen = this.#maySplit ? split?.choose(targets, this.#routed, this.#tried) : undefined;
    if (chosen?.pair) {
      this.#beginPair(chosen.pair);
      return;
    }
    const selection = chosen?.whole ?? selector.select(pool, targets, this.#routed, { tried: this.#tried });
    if (selection) this.#dispatch(selection);
    else this.#finish(Number.NaN, "no engine is available");
  }

  /** One engine computes the prompt; then the other one fetches it and answers. */
  #beginPair({ prefill, decode }: SimPair): void {
    this.#maySplit = false;
    const { activeBlocks } = decode;
    this.#reservation = decode.target.load.begin({ ...this.#routed.features, uncachedTokens: 1, activeBlocks });
    this.#leg = new SimPrefillLeg(this.#router, {
      request: this.#request,
      routed: this.#routed,
      selection: prefill,
      arrivedWallMs: this.#arrivedWallMs,
      settled: (isDone) => {
        this.#reservation?.end();
        if (isDone) {
          this.#dispatch(decode);
          return;
        }
        this.#leg = undefined;
        this.#tried.add(prefill.target.key);
        this.#attempt(this.#router.targets);
      },
    });
  }

  #dispatch({ target, matchedTokens, work, activeBlocks }: Selection<SimTarget>): void {
    const { options, view, split } = this.#router;
    const { features, prompt } = this.#routed;
    const { promptTokens, adapter } = features;
    const computedTokens = Math.max(1, this.#leg ? 1 : promptTokens - matchedTokens);
    // What another engine has computed is not computed here.
    this.#work = this.#leg ? undefined : work;
    this.#tried.add(target.key);
    this.#target = target;
    this.#predictedTokens = this.#leg?.matchedTokens ?? matchedTokens;
    const workMs = this.#work?.sent() ?? 0;
    this.#ticket = target.load.begin({ ...features, uncachedTokens: computedTokens, workMs, activeBlocks });
    this.#admitted?.dispatched(Math.max(1, promptTokens - matchedTokens));
    if (adapter !== undefined) target.adapters.sent(adapter);
    this.#placement = prompt && view.knowledge.place(target, prompt, matchedTokens);
    this.#leg?.handedOver(Math.max(1, promptTokens - matchedTokens));
    const wanted = {
      ...(this.#leg && split ? { imported: { tokens: promptTokens, ...split.link } } : {}),
      ...placeWish(options, this.#request, { arrivedWallMs: this.#arrivedWallMs, workMs }),
    };
    options.scheduler.after(options.hopDelayMs, () => {
      if (!this.#isOver && !target.model.submit(this.#request, this, wanted)) this.lost();
    });
  }

  /** What an engine says takes its time to the router. */
  #soon(task: () => void): void {
    const { scheduler, hopDelayMs } = this.#router.options;
    scheduler.after(hopDelayMs, () => {
      if (!this.#isOver) task();
    });
  }

  imported(): void {
    this.#leg?.release();
  }

  firstToken(): void {
    this.#soon(() => {
      this.#firstTokenMs = this.#router.options.trueClock.nowMs();
      this.#leg?.fetched();
      this.#work?.firstToken();
      this.#ticket?.firstToken();
      this.#placement?.computed();
      this.#router.admission?.eased();
    });
  }

  progress(tokens: number): void {
    this.#soon(() => this.#ticket?.progress(tokens));
  }

  finished(report: Pick<BlockReport, "cachedTokens">): void {
    // Of what came from another engine, that much had been cached there.
    const cachedTokens = this.#leg?.cachedTokens ?? report.cachedTokens;
    this.#soon(() => {
      this.#ticket?.end();
      const { promptTokens, outputTokens } = this.#request;
      const answeredMs = this.#router.options.trueClock.nowMs() - this.#firstTokenMs;
      const heldMs = ((promptTokens + outputTokens) / (this.#target?.model.kvTokens ?? Infinity)) * answeredMs;
      const uncachedTokens = promptTokens - this.#predictedTokens;
      this.#router.split?.served({ promptTokens, uncachedTokens, outputTokens, heldMs });
      this.#work?.ended(outputTokens);
      this.#placement?.answered(this.#leg ? undefined : cachedTokens);
      this.#admitted?.ended(this.#request.outputTokens);
      this.#finish(cachedTokens, undefined);
      this.#router.admission?.eased();
    });
  }

  lost(): void {
    this.#soon(() => {
      this.#ticket?.end();
      this.#target?.failed();
      this.#leg?.cancel();
      this.#leg = undefined;
      if (Number.isNaN(this.#firstTokenMs)) {
        this.#placement?.withdraw();
        this.#attempt(this.#router.targets);
        return;
      }
      this.#placement?.answered(undefined);
      this.#finish(Number.NaN, "the engine went away");
    });
  }

  cut(): void {
    this.#admitted?.leave();
    this.#target?.model.abort(this.#request);
    this.#finish(Number.NaN, "the router went away");
  }

  #finish(cachedTokens: number, error: string | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#leg?.cancel();
    this.#ended({
      firstTokenMs: this.#firstTokenMs,
      endMs: this.#router.options.trueClock.nowMs(),
      cachedTokens,
      error,
      engine: error === undefined ? (this.#target?.model.number ?? -1) : -1,
      ...(this.#leg && { prefillEngine: this.#leg.engine }),
      predictedTokens: this.#predictedTokens,
      isSpill: this.#tried.size > 1,
    });
  }
}

function promptOf({ promptTokens, chain }: SimRequest): PromptBlocks {
  const blockCount = Math.floor(promptTokens / blockTokens);
  return { chain, contents: chain, blockCount, blockSize: blockTokens, tokens: promptTokens, from: "tokens" };
}

/** Half of the chain hash of the last full block among the prompt's first tokens. */
function prefixKeyOf({ promptTokens, chain }: SimRequest, tokens: number): number | undefined {
  const block = Math.floor(Math.min(promptTokens, tokens) / blockTokens) - 1;
  return block < 0 ? undefined : chain[2 * block];
}
