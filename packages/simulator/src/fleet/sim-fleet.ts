import { createSeededRandom, type EngineRole, type Logger, type Meter, type Random } from "@espalier/core";
import type { EngineParameters, PullLimits } from "@espalier/engine-model";
import type { ReplicaPorts } from "@espalier/mesh";
import { type CustomPolicies, defaultObjectives, type Objectives } from "@espalier/policies";
import type { AdmissionSettings, EngineOrder } from "@espalier/routing";
import { createMemoryNetwork, createVirtualTime, type MemoryNetwork, type VirtualTime } from "@espalier/testing";
import type { SimRequest } from "../clients/workload.ts";
import { createDelayedTier } from "../delayed/delayed-tier.ts";
import type { FleetControls } from "../faults.ts";
import type { Rival } from "../rivals/rival.ts";
import { nearRivalNames, rivalOf } from "../rivals/rivals.ts";
import type { LinkModel, Sharing, SimTiming } from "../run.ts";
import { type Placement, placeTogether } from "../topology.ts";
import { createClusterIp, type FrontOutcome, type SimFront } from "./front.ts";
import { createEventFaults, type EventFaults } from "./kv-events.ts";
import type { LlmdRule } from "./llm-d-pulls.ts";
import { createSimRouter, type RouterFactoryOptions, RouterNode, refused } from "./router-node.ts";
import { ModelledEngine, type SimEngine } from "./sim-engine.ts";
import { SimPool, type SimPoolSettings } from "./sim-pool.ts";
import type { SplitSettings } from "./sim-router.ts";

/** The policy of a fleet that has no router. */
export const clusterIp = "clusterip";

export interface SimFleetOptions {
  readonly engines: number;
  readonly parameters: EngineParameters;
  /** Cyclic overrides: engine n uses the one at n modulo their number. None by default. */
  readonly perEngine?: readonly Partial<EngineParameters>[];
  /** How engines pull from each other's CPU memory; they cannot when absent. */
  readonly pull?: PullLimits | undefined;
  /** A pool that all engines write to and read from; none when absent. */
  readonly pool?: SimPoolSettings | undefined;
  readonly routers: number;
  /** Number of routers that `start` starts; the others are started later. All by default. */
  readonly startedRouters?: number;
  /** A policy by name, `clusterip`, or the name of a published system. */
  readonly policy: string;
  readonly policyOptions?: Readonly<Record<string, number>>;
  /** What routers go by; `defaultObjectives` unless given. */
  readonly objectives?: Objectives;
  /** Policies that are not in the catalogue, by name. What one throws ends the run. */
  readonly customPolicies?: CustomPolicies;
  /** The part of `predicted_latency`, the policy, that is left out. */
  readonly without?: string;
  /** What `epp_weighted` has of llm-d's router besides its rule. */
  readonly llmdRule?: LlmdRule | undefined;
  /** Admission control; requests are sent at once when absent. */
  readonly admission?: AdmissionSettings;
  /** The order in which engines serve their queues; `arrival` by default. */
  readonly engineOrder?: EngineOrder;
  /** Roles of the engines by number; `both` for those beyond. */
  readonly roles?: readonly EngineRole[];
  /** Disaggregation settings; one engine serves each request when absent. */
  readonly split?: SplitSettings;
  readonly sharing: Sharing;
  readonly links: LinkModel;
  readonly timing: SimTiming;
  /** Regions of the engines and routers; all is equally near when absent. */
  readonly placement?: Placement;
  readonly seed: number;
  /** Shared with other fleets; its own by default. */
  readonly time?: VirtualTime;
  /** Wraps the carrier of a replica's state. */
  readonly wrapPorts?: (ports: ReplicaPorts, router: number) => ReplicaPorts;
  /** Logs and metrics of routers with real links. None by default. */
  readonly observe?: (router: number) => { readonly logger: Logger; readonly meter: Meter };
}

/** Overrides of one engine of a fleet, by its number. */
export function overridesOfEngine(
  { perEngine = [] }: Pick<SimFleetOptions, "perEngine">,
  number: number,
): Partial<EngineParameters> {
  return perEngine[number % perEngine.length] ?? {};
}

/** Parameters of one engine of a fleet, by its number. */
export function parametersOfEngine(
  fleet: Pick<SimFleetOptions, "parameters" | "perEngine">,
  number: number,
): EngineParameters {
  return { ...fleet.parameters, ...overridesOfEngine(fleet, number) };
}

/** Virtual time between two points at which promises may continue. */
const sliceMs = 20;
/** Longest chain of promises when a router starts or stops. */
const promiseDepth = 40;
/** Ends a start that hangs. */
const startDeadlineMs = 30_000;

/** Routers and engines in virtual time. Time passes only in `start` and `run`. */
export class SimFleet implements FleetControls {
  readonly time: VirtualTime;
  readonly engines: readonly SimEngine[];
  readonly routerNodes: readonly RouterNode[];
  readonly network: MemoryNetwork;
  readonly events: EventFaults;
  readonly #options: SimFleetOptions;
  readonly #random: Random;
  readonly #factory: RouterFactoryOptions;
  readonly #service: SimFront | undefined;
  readonly #rival: Rival | undefined;

  constructor(options: SimFleetOptions) {
    const { seed, timing, policy, policyOptions = {}, objectives = defaultObjectives, sharing, placement } = options;
    if (placement && policy === clusterIp) throw new RangeError(`${clusterIp} has no regions`);
    const createRival = rivalOf(policy);
    if (createRival && !placement && !nearRivalNames.includes(policy)) throw new RangeError(`${policy} needs regions`);
    this.time = options.time ?? createVirtualTime();
    const { clock, scheduler } = this.time;
    this.#options = options;
    this.#random = createSeededRandom(seed);
    const hasLinks = sharing === "mesh" && options.links === "real";
    if (options.pool && placement) throw new RangeError("a KV pool has no region");
    const pool =
      options.pool &&
      new SimPool({
        ...{ ...options.pool, number: options.engines, parameters: options.parameters },
        ...{ clock, scheduler, keepsMessages: hasLinks },
      });
    this.engines = Array.from(
      { length: options.engines },
      (_, number) =>
        new ModelledEngine({
          ...{ number, parameters: parametersOfEngine(options, number), clock, scheduler, keepsMessages: hasLinks },
          hasEvents: pool !== undefined || createRival !== undefined || (sharing !== "none" && policy !== clusterIp),
          ...{ pull: options.pull, pool },
        }),
    );
    for (const engine of pool ? this.engines : []) engine.onMessage(({ changes }) => pool!.write(changes));
    this.events = createEventFaults(pool ? [...this.engines, pool] : this.engines);
    this.routerNodes = Array.from({ length: options.routers }, (_, number) => new RouterNode(number, this.time));
    this.network = createMemoryNetwork({ clock, scheduler, random: createSeededRandom(seed + 1) });
    this.network.setSpeed({ delayMs: timing.linkDelayMs });
    if (placement && hasLinks) this.#setDistances(placement);
    const delayed = hasLinks
      ? undefined
      : createDelayedTier({ ...options, engines: this.engines, pool, clock, scheduler });
    this.#factory = {
      ...{ policy, policyOptions, objectives },
      ...{ engines: this.engines, pool, events: this.events, timing, placement, seed, delayed },
      ...{ network: this.network, trueClock: clock },
      seeds: this.routerNodes.slice(0, 3).map(({ address }) => address),
      wrapPorts: options.wrapPorts,
      engineOrder: options.engineOrder ?? "arrival",
      llmdRule: options.llmdRule,
      ...{ admission: options.admission, split: options.split, roles: options.roles ?? [] },
      observe: options.observe,
      customPolicies: options.customPolicies,
      without: options.without,
    };
    this.#service =
      policy === clusterIp ? createClusterIp({ engines: this.engines, clock, random: this.#random }) : undefined;
    const parts = { engines: this.engines, clock, scheduler, random: this.#random };
    this.#rival = createRival?.({
      ...parts,
      placement: placement ?? placeTogether(options, timing),
      parametersOf: (number) => parametersOfEngine(options, number),
    });
  }

  /** Starts the routers and runs until all are ready. @throws Error when they do not become ready */
  async start(): Promise<void> {
    if (this.#service || this.#rival) return;
    const first = this.routerNodes.slice(0, this.#options.startedRouters ?? this.routerNodes.length);
    for (const { number } of first) this.startRouter(number);
    while (!first.every(({ isServing, router }) => isServing && router?.view.isSettled)) {
      if (this.time.clock.nowMs() > startDeadlineMs) throw new Error("the routers did not become ready");
      await this.run(this.time.clock.nowMs() + sliceMs);
    }
  }

  /** Runs up to a moment. */
  async run(untilMs: number): Promise<void> {
    const { clock } = this.time;
    for (;;) {
      for (let depth = 0; depth < promiseDepth; depth++) await undefined;
      if (clock.nowMs() >= untilMs) return;
      this.time.runUntil(Math.min(untilMs, clock.nowMs() + sliceMs));
    }
  }

  /** A client resolves the tier's name and sends a request to one of the routers. */
  send(request: SimRequest, ended: (outcome: FrontOutcome, router: number) => void): void {
    const { scheduler, clock } = this.time;
    const { timing, placement } = this.#options;
    const { hopDelayMs, frontMs = 0 } = timing;
    const { region = 0 } = request;
    const rival = this.#rival;
    if (rival) {
      scheduler.after(frontMs, () => rival.handle(request, region, (outcome) => ended(outcome, -1)));
      return;
    }
    const wayMs = ({ number }: RouterNode): number =>
      placement ? placement.clientDelayMs(region, placement.routers[number]!) : hopDelayMs;
    const back = (outcome: FrontOutcome, node: RouterNode | undefined): void => {
      const delayMs = node ? wayMs(node) : hopDelayMs;
      scheduler.after(delayMs, () => {
        ended(
          { ...outcome, firstTokenMs: outcome.firstTokenMs + delayMs, endMs: clock.nowMs() },
          node ? node.number : -1,
        );
        if (node && request.endsSession) scheduler.after(delayMs, () => node.router?.endSession(request.session));
      });
    };
    const arrive = (tier: readonly RouterNode[]): void => {
      if (this.#service) {
        this.#service.handle(request, (outcome) => back(outcome, undefined));
        return;
      }
      const serving = tier.filter(({ isServing }) => isServing);
      const node = serving[this.#random.integer(Math.max(1, serving.length))];
      if (!node) back(refused(clock.nowMs(), "no router is ready"), undefined);
      else node.handle(request, (outcome) => back(outcome, node));
    };
    if (!placement) {
      scheduler.after(hopDelayMs + frontMs, () => arrive(this.routerNodes));
      return;
    }
    // DNS names the nearest ones that are ready; on the way one of them may end, and its neighbours take the request.
    const ready = this.routerNodes.filter(({ isServing }) => isServing);
    const nearestMs = Math.min(...(ready.length > 0 ? ready : this.routerNodes).map(wayMs));
    scheduler.after(nearestMs + frontMs, () => arrive(this.routerNodes.filter((node) => wayMs(node) === nearestMs)));
  }

  /** Ends all processes. */
  async stop(): Promise<void> {
    for (const node of this.routerNodes) node.end(this.time.clock.nowMs());
    for (const engine of this.engines) engine.kill();
    await this.run(this.time.clock.nowMs() + sliceMs);
  }

  get routerCount(): number {
    return this.routerNodes.length;
  }

  get engineCount(): number {
    return this.engines.length;
  }

  partition(groups: readonly (readonly number[])[]): void {
    this.network.partition(groups.map((group) => group.map((number) => this.#node(number).address)));
  }

  cutLink(from: number, to: number): void {
    this.network.cut({ from: this.#node(from).address, to: this.#node(to).address });
  }

  mendLink(from: number, to: number): void {
    this.network.mend({ from: this.#node(from).address, to: this.#node(to).address });
  }

  resetLink(one: number, other: number): void {
    this.network.reset(this.#node(one).address, this.#node(other).address);
  }

  setLinkSpeed(speed: { readonly delayMs: number; readonly jitterMs: number }): void {
    this.network.setSpeed(speed);
    if (this.#options.placement) this.#setDistances(this.#options.placement, speed);
  }

  heal(): void {
    this.network.heal();
    this.events.heal();
    for (const { number } of this.routerNodes) this.resumeRouter(number);
  }

  isRouterUp(router: number): boolean {
    return this.#node(router).router !== undefined;
  }

  killRouter(router: number): void {
    const node = this.#node(router);
    this.network.kill(node.address);
    node.end(this.time.clock.nowMs());
  }

  leaveRouter(router: number): void {
    const node = this.#node(router);
    if (!node.router || node.isLeaving) return;
    node.isLeaving = true;
    const leaving = node.router;
    const { view } = leaving;
    view.setDraining();
    const endWhenIdle = (): void => {
      if (node.router !== leaving) return;
      if (leaving.inFlight > 0) {
        node.time.scheduler.after(sliceMs, endWhenIdle);
        return;
      }
      void leaving.stop().then(() => {
        if (node.router === leaving) this.killRouter(router);
      });
    };
    node.time.scheduler.after(sliceMs, endWhenIdle);
  }

  startRouter(router: number): void {
    const node = this.#node(router);
    if (node.router) return;
    node.begin();
    node.router = createSimRouter(this.#factory, node);
    void node.router.start();
  }

  pauseRouter(router: number): void {
    const node = this.#node(router);
    if (!node.router) return;
    node.time.pause();
    this.network.freeze(node.address);
  }

  resumeRouter(router: number): void {
    const node = this.#node(router);
    if (!node.time.isPaused) return;
    this.network.thaw(node.address);
    node.time.resume();
  }

  jumpClock(router: number, byMs: number): void {
    this.#node(router).time.jumpWall(byMs);
  }

  setDrift(router: number, rate: number): void {
    this.#node(router).time.setDrift(rate);
  }

  isEngineUp(engine: number): boolean {
    return this.#engine(engine).isUp;
  }

  killEngine(engine: number): void {
    this.#engine(engine).kill();
  }

  startEngine(engine: number): void {
    this.#engine(engine).start();
  }

  slowEngine(engine: number, factor: number): void {
    this.#engine(engine).slow(factor);
  }

  loseEvents(engine: number, messages: number): void {
    this.events.lose(engine, messages);
  }

  setReplay(engine: number, isOn: boolean): void {
    this.events.setReplay(engine, isOn);
  }

  /** Every pair of routers has the delay between their regions, or that of slow links if it is longer. */
  #setDistances(
    { routers, delayMs: wayMs }: Placement,
    { delayMs: leastMs, jitterMs } = { delayMs: 0, jitterMs: 0 },
  ): void {
    for (const { number: one, address: from } of this.routerNodes) {
      for (const { number: other, address: to } of this.routerNodes) {
        const delayMs = Math.max(leastMs, wayMs(routers[one]!, routers[other]!));
        if (one !== other) this.network.setSpeed({ delayMs, jitterMs }, { from, to });
      }
    }
  }

  #node(number: number): RouterNode {
    const node = this.routerNodes[number];
    if (!node) throw new RangeError(`unknown router ${number}`);
    return node;
  }

  #engine(number: number): SimEngine {
    const engine = this.engines[number];
    if (!engine) throw new RangeError(`unknown engine ${number}`);
    return engine;
  }
}
