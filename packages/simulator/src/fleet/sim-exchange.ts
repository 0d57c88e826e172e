import type { EspalierError } from "@espalier/core";
import type { BlockReport } from "@espalier/engine-model";
import {
  type AdmissionSettings,
  ColdPrompt,
  type Dispatch,
  type EngineOrder,
  enginePlace,
  expectedOutputTokens,
  type FailureKind,
  type PlannedAttempt,
  type PrefillOutcome,
  type PromptBlocks,
  type RequestCarrier,
  RequestLifecycle,
  type RequestQueue,
  type Restriction,
  type RoutedRequest,
  type Selection,
} from "@espalier/routing";
import { blockTokens, type SimRequest } from "../clients/workload.ts";
import type { FrontOutcome } from "./front.ts";
import type { AnswerObserver, LegOptions } from "./sim-engine.ts";
import type { SimRouter } from "./sim-router.ts";
import type { SimTarget } from "./sim-target.ts";

const noneTried: ReadonlySet<string> = new Set();

/** Carries one request from a router to modelled engines, in virtual time. */
export class SimExchange implements AnswerObserver, RequestCarrier<SimTarget> {
  readonly isStream = true;
  readonly #router: SimRouter;
  readonly #request: SimRequest;
  readonly #ended: (outcome: FrontOutcome) => void;
  readonly #lifecycle: RequestLifecycle<SimTarget>;
  readonly #routed: RoutedRequest;
  readonly #arrivedWallMs: number;
  #current: PlannedAttempt<SimTarget> | undefined;
  /** The prefill leg, running or done. */
  #leg: SimPrefillLeg | undefined;
  #firstTokenMs = Number.NaN;
  #pulledTokens = 0;
  /** Whether an engine failed it. */
  #isSpill = false;
  #isOver = false;

  constructor(router: SimRouter, request: SimRequest, ended: (outcome: FrontOutcome) => void) {
    const { options, pool, targets, split, view } = router;
    const routed = routedRequest(router, request);
    this.#router = router;
    this.#request = request;
    this.#ended = ended;
    this.#routed = routed;
    this.#arrivedWallMs = options.clock.wallMs();
    this.#lifecycle = new RequestLifecycle<SimTarget>({
      clock: options.clock,
      knowledge: view.knowledge,
      request: { ...routed, pool, targets, split: split && nixlAlone },
      retries: router.createRetries(),
      carrier: this,
      planner: split,
      queue: this.#queueFor(routed),
    });
  }

  /** Sends the request to an engine, or queues it. */
  enter(): void {
    this.#lifecycle.enter();
  }

  targets(): readonly SimTarget[] {
    return this.#router.targets;
  }

  select(among: readonly SimTarget[], restriction: Restriction<SimTarget>): Selection<SimTarget> | undefined {
    return this.#router.selector.select(this.#router.pool, among, this.#routed, restriction);
  }

  uncachedTokens(): number | undefined {
    return this.#router.selector.uncachedTokens(this.#router.targets, this.#routed);
  }

  admitted(): void {
    this.#lifecycle.retries.begin();
    this.#launch(this.#lifecycle.next());
  }

  shed({ message }: EspalierError): void {
    this.#finish(Number.NaN, message);
  }

  prepare(_: unknown, ready: (isReady: boolean) => void): void {
    ready(true);
  }

  prefill(dispatch: Dispatch<SimTarget>, _: boolean, settled: (outcome: PrefillOutcome) => void): SimPrefillLeg {
    this.#leg = new SimPrefillLeg(this.#router, {
      ...{ request: this.#request, dispatch, arrivedWallMs: this.#arrivedWallMs },
      settled: (outcome) => {
        if (!outcome.isDone) this.#isSpill = true;
        settled(outcome);
      },
    });
    return this.#leg;
  }

  handOver(): boolean {
    return true;
  }

  /** Only for protocols that send both legs at once. */
  withdraw(): void {}

  resume(): void {
    this.#launch(this.#lifecycle.next());
  }

  imported(): void {
    this.#leg?.release();
  }

  firstToken(): void {
    this.#soon(() => {
      this.#firstTokenMs = this.#router.options.trueClock.nowMs();
      this.#lifecycle.answering(200);
      this.#lifecycle.firstToken(true);
    });
  }

  progress(tokens: number): void {
    this.#soon(() => this.#lifecycle.progress(tokens));
  }

  finished(report: Pick<BlockReport, "cachedTokens" | "pulledTokens">): void {
    this.#pulledTokens = report.pulledTokens;
    // For an imported prompt: the tokens that were cached at the prefill engine.
    const cachedTokens = this.#isPrefilled ? (this.#leg?.cachedTokens ?? Number.NaN) : report.cachedTokens;
    this.#soon(() => this.#finish(cachedTokens, undefined));
  }

  lost(): void {
    this.#soon(() => {
      this.#current?.dispatch.target.failed();
      this.#failed("reset");
    });
  }

  cut(): void {
    this.#lifecycle.leave();
    this.#current?.dispatch.target.model.abort(this.#request);
    this.#finish(Number.NaN, "the router went away");
  }

  #launch(attempt: PlannedAttempt<SimTarget> | "later" | undefined): void {
    if (attempt === "later") return;
    if (!attempt) {
      this.#finish(Number.NaN, "no engine is available");
      return;
    }
    this.#current = attempt;
    // Pinned for an attempt that was not made.
    if (attempt.leg !== "decode") this.#leg?.cancel();
    this.#lifecycle.started();
    this.#send(attempt);
  }

  #send({ dispatch, leg }: PlannedAttempt<SimTarget>): void {
    const { options, split } = this.#router;
    const { target, workMs, selection } = dispatch;
    const { adapter, promptTokens } = this.#request;
    if (adapter !== undefined) target.adapters.sent(adapter);
    const legOptions = {
      ...(leg === "decode" ? {} : { remote: selection.pull?.source.model }),
      ...(leg === "decode" && split ? { imported: { tokens: promptTokens, ...options.split!.link } } : {}),
      ...enginePriority(options, this.#request, { arrivedWallMs: this.#arrivedWallMs, workMs }),
    };
    options.scheduler.after(target.delayMs, () => {
      if (this.#isOver || target.model.submit(this.#request, this, legOptions)) return;
      this.#soon(() => {
        target.failed();
        this.#failed("connect");
      });
    });
  }

  #failed(kind: FailureKind): void {
    const hasBegun = !Number.isNaN(this.#firstTokenMs);
    this.#isSpill = true;
    if (kind === "reset") this.#lifecycle.retries.broke();
    this.#lifecycle.failed(kind, hasBegun);
    if (hasBegun) {
      this.#finish(Number.NaN, "the engine went away");
      return;
    }
    const { retries } = this.#lifecycle;
    let isAsked = false;
    const next = retries.after(kind, false, () => {
      isAsked = !retries.isDangerous;
      return this.#lifecycle.next();
    });
    if (next !== undefined) this.#launch(next);
    else this.#finish(Number.NaN, isAsked ? "no engine is available" : "it may go to no further engine");
  }

  /** Runs a task after the network delay from engine to router. */
  #soon(task: () => void): void {
    const { target } = this.#current!.dispatch;
    this.#router.options.scheduler.after(target.delayMs, () => {
      if (!this.#isOver) task();
    });
  }

  #queueFor(routed: RoutedRequest): RequestQueue<SimTarget> | undefined {
    const { admission, coldPrompts } = this.#router;
    if (!admission) return undefined;
    const { className, tenant = "" } = this.#request;
    const { promptTokens, expectedOutputTokens } = routed.features;
    const cold = coldPrompts && new ColdPrompt<SimTarget>(coldPrompts, routed, { tried: noneTried });
    if (routed.prompt) coldPrompts?.watch.arrived(routed.prompt);
    const size = { promptTokens, expectedOutputTokens, sizeBytes: 0 };
    const request = { ...size, className, tenant, deadlineMs: undefined, onlyEngine: undefined };
    return { admission, request, cold };
  }

  get #isPrefilled(): boolean {
    return this.#lifecycle.prefill !== undefined;
  }

  #finish(cachedTokens: number, error: string | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    const { prefill, selection } = this.#lifecycle;
    const prefillEngine = prefill?.target.model.number;
    const predictedTokens = (prefill ?? selection)?.matchedTokens ?? 0;
    this.#lifecycle.finish({
      isCompleted: error === undefined,
      status: error === undefined ? 200 : 0,
      isStream: true,
      cachedTokens: Number.isNaN(cachedTokens) ? undefined : cachedTokens,
      outputTokens: error === undefined ? this.#request.outputTokens : 0,
    });
    this.#leg?.cancel();
    this.#ended({
      firstTokenMs: this.#firstTokenMs,
      endMs: this.#router.options.trueClock.nowMs(),
      cachedTokens,
      error,
      engine: error === undefined ? (selection?.target.model.number ?? -1) : -1,
      ...(prefillEngine !== undefined && { prefillEngine }),
      predictedTokens,
      pulledTokens: this.#pulledTokens,
      isSpill: this.#isSpill,
    });
  }
}

/** Simulated engines transfer KV by NIXL only. */
const nixlAlone = { allows: ({ name }: { readonly name: string }): boolean => name === "nixl" };

export const sessionKeyOf = (session: number): string => `session-${session}`;

function routedRequest(router: SimRouter, request: SimRequest): RoutedRequest {
  const { promptTokens, session, adapter } = request;
  const { objectives, policy } = router.options;
  const features = {
    promptTokens,
    expectedOutputTokens: expectedOutputTokens(request),
    sessionKey: sessionKeyOf(session),
    prefixKey: prefixKeyOf(request, policy.prefixKeyTokens),
    adapter,
    sloTtftMs: objectives.ttftMs,
    sloTpotMs: objectives.tpotMs,
  };
  return { features, prompt: router.readsPrefixes ? promptOf(request) : undefined, canPull: router.canPull };
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

interface SimPrefillLegOptions {
  readonly request: SimRequest;
  readonly dispatch: Dispatch<SimTarget>;
  /** When the request reached the router, by the router's wall clock. */
  readonly arrivedWallMs: number;
  /** Called once, unless the leg is cancelled first. */
  readonly settled: (outcome: PrefillOutcome) => void;
}

/** The prefill leg: an engine computes a prompt and pins it until the decode engine has fetched it. */
class SimPrefillLeg implements AnswerObserver {
  /** Cached prompt tokens at the engine; NaN before it is done. */
  cachedTokens = Number.NaN;
  readonly #router: SimRouter;
  readonly #options: SimPrefillLegOptions;
  #isOver = false;

  constructor(router: SimRouter, options: SimPrefillLegOptions) {
    const { dispatch, request, arrivedWallMs } = options;
    const { target, workMs } = dispatch;
    const { scheduler } = router.options;
    this.#router = router;
    this.#options = options;
    if (request.adapter !== undefined) target.adapters.sent(request.adapter);
    const leg = { pinned: true, ...enginePriority(router.options, request, { arrivedWallMs, workMs }) };
    scheduler.after(target.delayMs, () => {
      if (!this.#isOver && !target.model.submit({ ...request, outputTokens: 1 }, this, leg)) this.lost();
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

  /** Frees the pinned prompt. */
  release(): void {
    this.#options.dispatch.target.model.release(this.#options.request);
  }

  /** Ends the leg at once, in any state. Idempotent. */
  cancel(): void {
    this.release();
    if (this.#isOver) return;
    this.#isOver = true;
    this.#options.dispatch.target.model.abort(this.#options.request);
  }

  #settle(isDone: boolean): void {
    const { target } = this.#options.dispatch;
    this.#router.options.scheduler.after(target.delayMs, () => {
      if (this.#isOver) return;
      this.#isOver = true;
      if (!isDone) target.failed();
      this.#options.settled({ isDone });
    });
  }
}

/** The settings that determine engine priorities. */
interface OrderingRouter {
  readonly engineOrder?: EngineOrder;
  readonly admission?: AdmissionSettings | undefined;
}

interface OrderedWork {
  /** By the router's wall clock. */
  readonly arrivedWallMs: number;
  /** Expected prefill time of the prompt, in milliseconds. */
  readonly workMs: number;
}

/** The priority of a request at an engine, as the real router sets it; none where engines serve by arrival. */
export function enginePriority(
  { engineOrder, admission }: OrderingRouter,
  { className }: Pick<SimRequest, "className">,
  work: OrderedWork,
): Pick<LegOptions, "priority"> {
  if (engineOrder !== "shortest") return {};
  return { priority: enginePlace({ classesBelow: classesBelow(admission, className), ...work }) };
}

function classesBelow(admission: AdmissionSettings | undefined, className: string | undefined): number {
  if (!admission || className === undefined) return 0;
  const rankOf = (name: string): number => admission.classes.findIndex((one) => one.name === name);
  return rankOf(className) - rankOf(admission.defaultClass);
}
