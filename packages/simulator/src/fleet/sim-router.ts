import type { Cancel, Clock, Random, Scheduler } from "@espalier/common";
import { type Policy, policyCatalogue } from "@espalier/policies";
import {
  createPeerTraffic,
  createTargetSelector,
  type Placement,
  type PromptBlocks,
  type TargetSelector,
} from "@espalier/routing";
import type { LoadTicket } from "@espalier/workers";
import { blockTokens, type SimRequest } from "../clients/workload.ts";
import type { RouterView } from "./router-view.ts";
import type { AnswerObserver } from "./sim-engine.ts";
import type { FrontOutcome, SimFront } from "./sim-front.ts";
import type { SimTarget } from "./sim-target.ts";

export interface SimRouterOptions {
  readonly view: RouterView;
  readonly targets: readonly SimTarget[];
  readonly policy: Policy;
  /** The router's own. */
  readonly clock: Clock;
  /** What outcomes are timed by: clients do not share the clock of a router. */
  readonly trueClock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  /** One way to an engine. */
  readonly hopDelayMs: number;
  readonly scrapeMs: number;
}

/** How often routers probe engines' health by default. */
const probeMs = 2_000;

/** A router without its HTTP side: the selection, knowledge and load accounting of the real one. */
export class SimRouter implements SimFront {
  readonly view: RouterView;
  readonly targets: readonly SimTarget[];
  readonly options: SimRouterOptions;
  readonly selector: TargetSelector;
  readonly readsPrefixes: boolean;
  readonly #exchanges = new Set<Exchange>();
  #ends: readonly Cancel[] = [];

  constructor(options: SimRouterOptions) {
    const { view, clock } = options;
    this.options = options;
    this.view = view;
    this.targets = options.targets;
    this.readsPrefixes = policyCatalogue[options.policy.name].readsPrefixes;
    this.selector = createTargetSelector(
      options.random,
      view.knowledge,
      view.sharedLoad,
      createPeerTraffic(clock, view.sharedLoad, (target) => view.isOwn(target)),
    );
  }

  async start(): Promise<void> {
    const { scheduler, scrapeMs } = this.options;
    await this.view.start();
    const scrape = (): void => {
      for (const target of this.targets) {
        if (target.model.isUp) target.signals.read(target.model, target.load.inFlight + this.#othersInFlight(target));
        else target.signals.forget();
      }
    };
    scrape();
    this.#ends = [
      scheduler.every(scrapeMs, scrape),
      scheduler.every(probeMs, () => {
        for (const target of this.targets) target.probe();
      }),
    ];
  }

  async stop(): Promise<void> {
    for (const end of this.#ends) end();
    await this.view.stop();
  }

  /** Requests that are on their way through this router. */
  get inFlight(): number {
    return this.#exchanges.size;
  }

  handle(request: SimRequest, ended: (outcome: FrontOutcome) => void): void {
    const exchange = new Exchange(this, request, (outcome) => {
      this.#exchanges.delete(exchange);
      ended(outcome);
    });
    this.#exchanges.add(exchange);
    exchange.attempt();
  }

  /** The process is gone: connections to engines and to clients break. */
  die(): void {
    for (const end of this.#ends) end();
    for (const exchange of [...this.#exchanges]) exchange.cut();
  }

  #othersInFlight({ index }: SimTarget): number {
    return this.view.sharedLoad.inFlight[index] ?? 0;
  }
}

/** One request through a router. */
class Exchange implements AnswerObserver {
  readonly #router: SimRouter;
  readonly #request: SimRequest;
  readonly #ended: (outcome: FrontOutcome) => void;
  readonly #prompt: PromptBlocks | undefined;
  readonly #tried = new Set<string>();
  #target: SimTarget | undefined;
  #ticket: LoadTicket | undefined;
  #placement: Placement | undefined;
  #predictedTokens = 0;
  #firstTokenMs = Number.NaN;
  #isOver = false;

  constructor(router: SimRouter, request: SimRequest, ended: (outcome: FrontOutcome) => void) {
    this.#router = router;
    this.#request = request;
    this.#ended = ended;
    this.#prompt = router.readsPrefixes ? promptOf(request) : undefined;
  }

  attempt(): void {
    const { selector, options, targets, view } = this.#router;
    const { policy, scheduler, hopDelayMs } = options;
    const { promptTokens, outputTokens, session } = this.#request;
    const features = {
      promptTokens,
      expectedOutputTokens: outputTokens,
      sessionKey: `session-${session}`,
      prefixKey: prefixKeyOf(this.#request, policy.prefixKeyTokens),
    };
    const request = { features, prompt: this.#prompt };
    const selection = selector.select({ policy }, targets, request, { tried: this.#tried });
    if (!selection) {
      this.#finish(Number.NaN, "no engine is available");
      return;
    }
    const { target, matchedTokens } = selection;
    this.#tried.add(target.key);
    this.#target = target;
    this.#predictedTokens = matchedTokens;
    this.#ticket = target.load.begin({ ...features, uncachedTokens: Math.max(1, promptTokens - matchedTokens) });
    this.#placement = this.#prompt && view.knowledge.place(target, this.#prompt, matchedTokens);
    scheduler.after(hopDelayMs, () => {
      if (!this.#isOver && !target.model.submit(this.#request, this)) this.lost();
    });
  }

  /** What an engine says takes its time to the router. */
  #soon(task: () => void): void {
    const { scheduler, hopDelayMs } = this.#router.options;
    scheduler.after(hopDelayMs, () => {
      if (!this.#isOver) task();
    });
  }

  firstToken(): void {
    this.#soon(() => {
      this.#firstTokenMs = this.#router.options.trueClock.nowMs();
      this.#ticket?.firstToken();
      this.#placement?.computed();
    });
  }

  progress(tokens: number): void {
    this.#soon(() => this.#ticket?.progress(tokens));
  }

  finished({ cachedTokens }: { readonly cachedTokens: number }): void {
    this.#soon(() => {
      this.#ticket?.end();
      this.#placement?.answered(cachedTokens);
      this.#finish(cachedTokens, undefined);
    });
  }

  lost(): void {
    this.#soon(() => {
      this.#ticket?.end();
      this.#target?.failed();
      if (Number.isNaN(this.#firstTokenMs)) {
        this.#placement?.withdraw();
        this.attempt();
        return;
      }
      this.#placement?.answered(undefined);
      this.#finish(Number.NaN, "the engine went away");
    });
  }

  cut(): void {
    this.#target?.model.abort(this.#request);
    this.#finish(Number.NaN, "the router went away");
  }

  #finish(cachedTokens: number, error: string | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#ended({
      firstTokenMs: this.#firstTokenMs,
      endMs: this.#router.options.trueClock.nowMs(),
      cachedTokens,
      error,
      engine: error === undefined ? (this.#target?.model.number ?? -1) : -1,
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
