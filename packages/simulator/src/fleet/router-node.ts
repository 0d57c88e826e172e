import {
  type Clock,
  createSeededRandom,
  type EngineRole,
  type Logger,
  type Meter,
  type Random,
  type Scheduler,
} from "@espalier/core";
import type { ReplicaPorts } from "@espalier/mesh";
import {
  type CustomPolicies,
  createPolicy,
  createPolicyWithout,
  type Objectives,
  type PolicyFailed,
} from "@espalier/policies";
import type { AdmissionSettings, EngineOrder } from "@espalier/routing";
import type { MemoryNetwork } from "@espalier/testing";
import type { SimRequest } from "../clients/workload.ts";
import type { DelayedTier } from "../delayed/delayed-tier.ts";
import { type SimTiming, scrapeMsOf } from "../run.ts";
import { type Placement, timingBetween } from "../topology.ts";
import type { FrontOutcome } from "./front.ts";
import { type EventFaults, EventSubscription } from "./kv-events.ts";
import { type LlmdRule, withLlmdRule } from "./llm-d-pulls.ts";
import { createNodeTime, type NodeTime } from "./node-time.ts";
import { RealView, type RouterView } from "./router-view.ts";
import type { SimEngine } from "./sim-engine.ts";
import type { SimPool } from "./sim-pool.ts";
import { SimRouter, type SplitSettings } from "./sim-router.ts";
import { createReadings, SimTarget } from "./sim-target.ts";

type Ended = (outcome: FrontOutcome) => void;

/** A router node. Its number and address stay the same while its process starts and stops. */
export class RouterNode {
  readonly number: number;
  readonly id: string;
  readonly address: string;
  /** Requests waiting in the socket of a paused process. */
  readonly #waiting = new Set<Ended>();
  /** Clocks and timers of the current or last process. */
  time: NodeTime;
  router: SimRouter | undefined;
  epochs = 0;
  /** It drains: running requests are answered, new ones are not accepted. */
  isLeaving = false;

  constructor(number: number, world: { readonly clock: Clock; readonly scheduler: Scheduler }) {
    this.number = number;
    this.id = `router-${number}`;
    this.address = `127.${1 + (number >> 16)}.${(number >> 8) & 255}.${number & 255}:7000`;
    this.time = createNodeTime(world);
  }

  /** Whether DNS gives this router to clients that resolve the tier's name. */
  get isServing(): boolean {
    return this.router !== undefined && !this.isLeaving && this.router.view.waitingFor.length === 0;
  }

  /** Begins a new, empty process. */
  begin(): void {
    this.time = this.time.next();
    this.epochs++;
    this.isLeaving = false;
  }

  handle(request: SimRequest, ended: Ended): void {
    if (!this.time.isPaused) {
      this.router?.handle(request, ended);
      return;
    }
    this.#waiting.add(ended);
    this.time.scheduler.after(0, () => {
      if (this.#waiting.delete(ended)) this.router?.handle(request, ended);
    });
  }

  /** Kills the process. */
  end(nowMs: number): void {
    const { router } = this;
    this.router = undefined;
    router?.die();
    for (const ended of this.#waiting) ended(refused(nowMs, "the router went away"));
    this.#waiting.clear();
    this.time.kill();
    void router?.stop();
  }
}

/** The outcome of a request without an answer. */
export function refused(endMs: number, error: string): FrontOutcome {
  return {
    ...{ firstTokenMs: Number.NaN, endMs, cachedTokens: Number.NaN, error },
    ...{ engine: -1, predictedTokens: 0, isSpill: false },
  };
}

export interface RouterFactoryOptions {
  readonly policy: string;
  readonly policyOptions: Readonly<Record<string, number>>;
  readonly objectives: Objectives;
  readonly customPolicies: CustomPolicies | undefined;
  /** The part of `predicted_latency`, the policy, that is left out. */
  readonly without: string | undefined;
  /** For `epp_weighted`. */
  readonly llmdRule: LlmdRule | undefined;
  /** Admission control; requests are sent at once when undefined. */
  readonly admission: AdmissionSettings | undefined;
  /** The order in which engines serve their queues. */
  readonly engineOrder: EngineOrder;
  /** Disaggregation settings; one engine serves each request when undefined. */
  readonly split: SplitSettings | undefined;
  readonly engines: readonly SimEngine[];
  readonly pool: SimPool | undefined;
  /** Roles of the engines by number; `both` for those beyond. */
  readonly roles: readonly EngineRole[];
  readonly events: EventFaults;
  readonly timing: SimTiming;
  /** Regions of the engines and routers; all is equally near when undefined. */
  readonly placement: Placement | undefined;
  readonly seed: number;
  /** Virtual time, independent of a router's own clock. */
  readonly trueClock: Clock;
  /** Undefined when routers have their own links. */
  readonly delayed: DelayedTier | undefined;
  readonly network: MemoryNetwork;
  /** Seed addresses. */
  readonly seeds: readonly string[];
  readonly wrapPorts: ((ports: ReplicaPorts, router: number) => ReplicaPorts) | undefined;
  readonly observe: ((router: number) => { readonly logger: Logger; readonly meter: Meter }) | undefined;
}

const onFailure: PolicyFailed = (_, error) => {
  throw error;
};

/** Creates the router of a node's process, without starting it. */
export function createSimRouter(options: RouterFactoryOptions, node: RouterNode): SimRouter {
  const { policy, policyOptions, llmdRule, engines, timing, seed, delayed, trueClock } = options;
  const { clock, scheduler } = node.time;
  const random = createSeededRandom(seed * 65_537 + node.number * 257 + node.epochs);
  const readings = createReadings(engines.length);
  const onChange = (target: SimTarget): void => view.loadChanged(target);
  const { hopDelayMs } = timing;
  const targets = engines.map((model) => {
    const delayMs = wayMs(options, node.number, model.number);
    return new SimTarget({
      ...{ model, index: model.number, clock, readings, onChange, role: options.roles[model.number] },
      ...(delayMs === undefined ? { delayMs: hopDelayMs } : { delayMs, networkMs: 2 * delayMs }),
    });
  });
  const view: RouterView = delayed ? delayed.viewOf(node.number, targets) : realView(options, node, random);
  const named =
    options.without === undefined
      ? createPolicy(policy, policyOptions, { custom: options.customPolicies ?? {}, onFailure })
      : createPolicyWithout(options.without, policyOptions);
  const decides = llmdRule && named.name === "epp_weighted" ? withLlmdRule(named, llmdRule) : named;
  const scrapeMs = scrapeMsOf(timing, decides);
  return new SimRouter({
    ...{ view, targets, clock, trueClock, scheduler, random, scrapeMs },
    policy: decides,
    objectives: options.objectives,
    admission: options.admission,
    engineOrder: options.engineOrder,
    split: options.split,
  });
}

/** One way between a router and an engine, in milliseconds; undefined without regions. */
function wayMs({ placement }: RouterFactoryOptions, router: number, engine: number): number | undefined {
  return placement?.delayMs(placement.routers[router]!, placement.engines[engine]!);
}

function realView(options: RouterFactoryOptions, node: RouterNode, random: Random): RealView {
  const { engines, pool, events, timing, network, seeds, wrapPorts, observe, placement } = options;
  const { clock, scheduler } = node.time;
  return new RealView({
    ...{ engines, pool, clock, scheduler, random, ...observe?.(node.number) },
    router: node.id,
    ...(placement && {
      region: `region-${placement.routers[node.number]!}`,
      regionOf: (engine: number) => `region-${placement.engines[engine]!}`,
    }),
    transport: network.transport(node.address),
    seeds: seeds.filter((address) => address !== node.address),
    readEngine: (engine, output) => {
      const delayMs = wayMs(options, node.number, engine.number);
      const { eventDelayMs } = delayMs === undefined ? timing : timingBetween(timing, delayMs);
      return new EventSubscription({
        ...{ engine, output, scheduler, delayMs: eventDelayMs },
        isLost: ({ sequence }) => events.isLost(engine.number, sequence),
        canReplay: () => events.canReplay(engine.number),
      });
    },
    ...(wrapPorts && { wrapPorts: (ports) => wrapPorts(ports, node.number) }),
  });
}
