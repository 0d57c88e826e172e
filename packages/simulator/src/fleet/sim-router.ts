import { type Cancel, type Clock, type Random, type Scheduler, silentMeter } from "@espalier/core";
import type { ImportedPrompt } from "@espalier/engine-model";
import type { Objectives, Policy } from "@espalier/policies";
import type { SplitThresholdOptions } from "@espalier/routing";
import {
  type Admission,
  type AdmissionSettings,
  type ColdPromptParts,
  createAdmission,
  createAdmissionMeters,
  createFleetLearning,
  createFleetRoles,
  createLendTrust,
  createPeerTraffic,
  createRetryBudget,
  createRetryMeters,
  createSharedCredits,
  createSplitMetrics,
  createTargetSelector,
  dryRunCredits,
  dryRunSessions,
  dryRunTraffic,
  type EngineOrder,
  type FleetLearning,
  PairPlanner,
  Retries,
  type RetryBudget,
  type SelectablePool,
  type SharedCredits,
  type TargetSelector,
} from "@espalier/routing";
import type { NoteChannel } from "@espalier/shared-tree";
import type { SimRequest } from "../clients/workload.ts";
import type { FrontOutcome, SimFront } from "./front.ts";
import type { RouterView } from "./router-view.ts";
import { SimExchange, sessionKeyOf } from "./sim-exchange.ts";
import { metricsOf, type SimTarget } from "./sim-target.ts";

interface SimRouterOptions {
  readonly view: RouterView;
  readonly targets: readonly SimTarget[];
  readonly policy: Policy;
  readonly objectives: Objectives;
  /** The router's own clock. */
  readonly clock: Clock;
  /** Measures outcomes: clients do not share the router's clock. */
  readonly trueClock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly scrapeMs: number;
  /** Admission control; requests are sent at once when absent. */
  readonly admission?: AdmissionSettings | undefined;
  /** The order in which engines serve their queues; by arrival when absent. */
  readonly engineOrder?: EngineOrder;
  /** Disaggregation settings; one engine serves each request when absent. */
  readonly split?: SplitSettings | undefined;
}

/** How often routers probe engines' health by default. */
const probeMs = 2_000;
/** Engines of a simulation all serve one model. */
const simulatedModel = "simulated";
const retryMeters = createRetryMeters(silentMeter);

/** A router without its HTTP side: the selection, knowledge and load accounting of the real one. */
export class SimRouter implements SimFront {
  readonly view: RouterView;
  readonly targets: readonly SimTarget[];
  readonly options: SimRouterOptions;
  readonly selector: TargetSelector;
  readonly pool: SelectablePool;
  readonly readsPrefixes: boolean;
  /** Whether some engine can pull from another one. */
  readonly canPull: boolean;
  readonly admission: Admission<SimTarget> | undefined;
  readonly split: PairPlanner<SimTarget> | undefined;
  /** Undefined when no class may wait for a cold prompt. */
  readonly coldPrompts: ColdPromptParts | undefined;
  readonly #exchanges = new Set<SimExchange>();
  readonly #learning: FleetLearning;
  readonly #credits: SharedCredits;
  readonly #retryBudget: RetryBudget;
  #ends: readonly Cancel[] = [];

  constructor(options: SimRouterOptions) {
    const { view, clock, random, split: settings } = options;
    this.options = options;
    this.view = view;
    this.targets = options.targets;
    const { scheduler } = options;
    this.#learning = createFleetLearning({ channel: view.notes, clock, scheduler, meter: silentMeter });
    this.#credits = createSharedCredits({ channel: view.notes, clock, scheduler, meter: silentMeter });
    this.pool = { policy: options.policy, work: this.#learning.workOf(simulatedModel) };
    this.readsPrefixes = options.policy.readsPrefixes;
    this.canPull = options.targets.some(({ engine }) => engine.kvPull !== undefined);
    const traffic = createPeerTraffic(clock, view.sharedLoad, (target) => view.isOwn(target));
    const { knowledge, sharedLoad, sessions } = view;
    const parts = { random, knowledge, shared: sharedLoad, trust: createLendTrust(clock, silentMeter) };
    this.selector = createTargetSelector({ ...parts, traffic, sessions, credits: this.#credits });
    const dryRunSelector = createTargetSelector({
      ...parts,
      traffic: dryRunTraffic(traffic),
      sessions: dryRunSessions(sessions),
      credits: dryRunCredits(this.#credits),
    });
    const selectors = { selector: this.selector, dryRunSelector };
    this.split = settings && createSimPlanner({ ...selectors, settings, clock, notes: view.notes });
    this.#retryBudget = createRetryBudget(clock);
    this.admission = admissionOf(options);
    if (!options.admission?.classes.some(({ maxColdWaitMs }) => maxColdWaitMs > 0)) return;
    this.coldPrompts = {
      ...{ watch: view.watchMemory(), dryRunSelector, pool: this.pool },
      pendingTokens: ({ index, load }) => load.pendingPrefillTokens + (sharedLoad.pendingPrefillTokens[index] ?? 0),
    };
  }

  async start(): Promise<void> {
    const { clock, scheduler, scrapeMs } = this.options;
    await this.view.start();
    await this.#learning.start();
    await this.#credits.start();
    const scrape = (): void => {
      for (const target of this.targets) {
        const { model, delayMs, networkMs, load } = target;
        const asked = { inFlight: load.inFlight + this.#othersInFlight(target), atMs: clock.nowMs() };
        if (Number.isNaN(networkMs)) {
          target.read(metricsOf(model), asked);
          continue;
        }
        scheduler.after(delayMs, () => {
          const metrics = metricsOf(model);
          scheduler.after(delayMs, () => target.read(metrics, asked));
        });
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
    await this.#credits.stop();
    await this.#learning.stop();
    await this.view.stop();
  }

  /** Requests in flight through this router. */
  get inFlight(): number {
    return this.#exchanges.size;
  }

  /** For one request. */
  createRetries(): Retries {
    return new Retries(this.#retryBudget, retryMeters);
  }

  handle(request: SimRequest, ended: (outcome: FrontOutcome) => void): void {
    const exchange = new SimExchange(this, request, (outcome) => {
      this.#exchanges.delete(exchange);
      ended(outcome);
    });
    this.#exchanges.add(exchange);
    exchange.enter();
  }

  /** A client says that a session is over. */
  endSession(session: number): void {
    this.view.sessions.endSession(sessionKeyOf(session), [this.pool.model ?? ""]);
  }

  /** Kills the process: connections to engines and to clients break. */
  die(): void {
    for (const end of this.#ends) end();
    for (const exchange of [...this.#exchanges]) exchange.cut();
  }

  #othersInFlight({ index }: SimTarget): number {
    return this.view.sharedLoad.inFlight[index] ?? 0;
  }
}

function admissionOf({ admission: settings, view, clock, scheduler }: SimRouterOptions): SimRouter["admission"] {
  if (!settings) return undefined;
  const parts = { meters: createAdmissionMeters(silentMeter), others: view.sharedLoad, fleet: view.usage };
  return createAdmission({ settings, clock, scheduler, ...parts });
}

/** Transfer times of KV blocks between any two engines. */
type KvLink = Pick<ImportedPrompt, "setupMs" | "msPerToken">;

/** Disaggregated serving: a prefill leg, then a decode leg, as with NIXL. */
export interface SplitSettings extends SplitThresholdOptions {
  readonly link: KvLink;
  /** Whether engines of role `both` are assigned to one role each, in proportion to the mix of requests. */
  readonly appliesBalance?: boolean;
}

interface SimPlannerOptions {
  readonly settings: SplitSettings;
  readonly clock: Clock;
  readonly selector: TargetSelector;
  /** A selector without side effects. */
  readonly dryRunSelector: TargetSelector;
  /** Carries the estimated work per role; undefined where routers share none. */
  readonly notes: NoteChannel | undefined;
}

function createSimPlanner({ settings, clock, notes, ...selectors }: SimPlannerOptions): PairPlanner<SimTarget> {
  return new PairPlanner({
    ...selectors,
    limits: { ...settings, applyRoleBalance: settings.appliesBalance ?? false },
    roles: createFleetRoles(clock, notes),
    metrics: createSplitMetrics(silentMeter),
  });
}

/** @param bytesPerS of a link from one engine to another */
export function kvLinkOf(
  { setupMs, bytesPerS }: { readonly setupMs: number; readonly bytesPerS: number },
  kvBytesPerToken: number,
): KvLink {
  return { setupMs, msPerToken: (1_000 * kvBytesPerToken) / bytesPerS };
}
