import { type Cancel, createSeededRandom, type Random, type Scheduler } from "@espalier/core";

export const faultNames = [
  "partition",
  "router-loss",
  "join-under-load",
  "rolling-restart",
  "engine-churn",
  "slow-engines",
  "slowing-engine",
] as const;

export type FaultName = (typeof faultNames)[number];

/** A change to a fleet at a moment of the run. */
export interface FaultAction {
  /** Virtual milliseconds since the start of the run. */
  readonly atMs: number;
  /** Description for people. */
  readonly what: string;
  /** @param scheduler for actions that have to wait */
  apply(controls: FleetControls, scheduler: Scheduler): void;
}

/** The fault of a run. */
export interface FaultPlan {
  readonly name: FaultName;
  /** The fault begins. */
  readonly fromMs: number;
  /** The fault ends; recovery is measured from here. */
  readonly toMs: number;
  /** Routers that the fleet needs beyond those of the run; they are down until the plan starts them. */
  readonly spareRouters: number;
  /** In order of time. */
  readonly actions: readonly FaultAction[];
}

interface FaultPlanOptions {
  readonly routers: number;
  readonly engines: number;
  /** Sending time of the run; the fault lies in its middle. */
  readonly durationMs: number;
  /** Draws which routers and engines are hit. */
  readonly seed: number;
}

/** Faults that can be injected into a running fleet. Routers and engines by number, from 0. */
export interface FleetControls {
  readonly routerCount: number;
  readonly engineCount: number;
  /** Groups of routers cannot reach each other. */
  partition(groups: readonly (readonly number[])[]): void;
  /** Cuts the link in one direction. */
  cutLink(from: number, to: number): void;
  mendLink(from: number, to: number): void;
  /** Breaks the connections between two routers; they may dial again. */
  resetLink(one: number, other: number): void;
  /** Applies to all links between routers. */
  setLinkSpeed(speed: { readonly delayMs: number; readonly jitterMs: number }): void;
  /** Ends partitions, cuts, pauses and event loss; speeds, dead routers and dead engines stay. */
  heal(): void;
  isRouterUp(router: number): boolean;
  /** Kills its process. Requests through it fail. */
  killRouter(router: number): void;
  /** Shuts it down gracefully: it answers its requests, then ends. */
  leaveRouter(router: number): void;
  /** Restarts a router that ended, under its id. */
  startRouter(router: number): void;
  /** SIGSTOP and SIGCONT. */
  pauseRouter(router: number): void;
  resumeRouter(router: number): void;
  /** Shifts its wall clock. */
  jumpClock(router: number, byMs: number): void;
  /** Makes its clocks run faster, as a share: 0.001 is a millisecond a second. */
  setDrift(router: number, rate: number): void;
  isEngineUp(engine: number): boolean;
  /** Kills its process and loses its cache; its requests fail. */
  killEngine(engine: number): void;
  /** Restarts an engine with an empty cache. */
  startEngine(engine: number): void;
  /** From now on its steps take `factor` times as long, after restarts too; 1 is the initial speed. */
  slowEngine(engine: number, factor: number): void;
  /** The next messages of KV events are lost, unless they are replayed. */
  loseEvents(engine: number, messages: number): void;
  /** Whether the engine replays missed messages. */
  setReplay(engine: number, isOn: boolean): void;
}

/**
 * A named plan in the middle of a run, or from the middle to the end.
 *
 * @throws RangeError when the fleet is too small or the run too short
 */
export function createFaultPlan(name: FaultName, options: FaultPlanOptions): FaultPlan {
  if (!isPossibleWith(name, options.routers)) throw new RangeError(`${name} needs at least 2 routers`);
  if (ofEngines.has(name) && options.engines < 2) throw new RangeError(`${name} needs another engine to go on with`);
  const { lengthMs, spareRouters, actions } = drafts[name](options, createSeededRandom(options.seed));
  const { durationMs } = options;
  const fromMs = (durationMs - (lengthMs ?? 0)) / 2;
  if (!(fromMs > 0)) {
    throw new RangeError(`${name} takes ${(lengthMs ?? 0) / 1_000} s: a run of ${durationMs / 1_000} s is too short`);
  }
  const moved = actions.map((action) => ({ ...action, atMs: fromMs + action.atMs }));
  moved.sort((one, other) => one.atMs - other.atMs);
  return { name, fromMs, toMs: lengthMs === undefined ? durationMs : fromMs + lengthMs, spareRouters, actions: moved };
}

/** Whether a fleet has enough routers for the fault. */
export function isPossibleWith(name: FaultName, routers: number): boolean {
  return routers >= 2 || !ofSeveralRouters.has(name);
}

/**
 * Schedules the actions of a plan. Must be called at the start of the run.
 *
 * @param done called after each action
 * @returns cancels the remaining actions
 */
export function runFaults(
  actions: readonly FaultAction[],
  fleet: { readonly controls: FleetControls; readonly scheduler: Scheduler },
  done: (action: FaultAction) => void = () => {},
): Cancel {
  const cancels = actions.map((action) =>
    fleet.scheduler.after(action.atMs, () => {
      action.apply(fleet.controls, fleet.scheduler);
      done(action);
    }),
  );
  return () => {
    for (const cancel of cancels) cancel();
  };
}

const partitionMs = 20_000;

const routerLossMs = 20_000;

/** How long a new router may take before it counts as a member. */
const joinMs = 5_000;

/** Between the restarts of two routers, and between the shutdown of a router and its restart. */
const restartPeriodMs = 5_000;

const restartDownMs = 2_000;

/** How often a leaving router is polled for its end; the polls together outlast any grace period. */
const startRetryMs = 250;

/** Polls for the end of a router that leaves. */
const maxStartTries = 1_000;

const churnPeriodMs = 2_000;

/** A killed engine restarts after this. */
const engineDownMs = 1_000;

const churnShare = 0.05;

/** Share of the engines that become slow, one of them at least, and how many times as long they take. */
const slowEngines = { share: 0.25, factor: 5 };

const slowingEngine = { share: 0, factor: 1 / 0.3 };

/** Faults of one router while the others continue. */
const ofSeveralRouters: ReadonlySet<FaultName> = new Set(["partition", "router-loss", "rolling-restart"]);

/** Faults of engines while another one continues. */
const ofEngines: ReadonlySet<FaultName> = new Set(["engine-churn", "slow-engines", "slowing-engine"]);

type Draft = Omit<FaultPlan, "name" | "fromMs" | "toMs"> & {
  /** Action times count from the beginning of the fault. Undefined for a fault without an end. */
  readonly lengthMs: number | undefined;
};

const drafts: Readonly<Record<FaultName, (options: FaultPlanOptions, random: Random) => Draft>> = {
  partition: draftPartition,
  "router-loss": draftRouterLoss,
  "join-under-load": draftJoin,
  "rolling-restart": draftRollingRestart,
  "engine-churn": draftEngineChurn,
  "slow-engines": draftSlow(slowEngines),
  "slowing-engine": draftSlow(slowingEngine),
};

function draftPartition({ routers }: FaultPlanOptions): Draft {
  const numbers = Array.from({ length: routers }, (_, router) => router);
  const half = Math.ceil(routers / 2);
  const groups = [numbers.slice(0, half), numbers.slice(half)];
  return {
    lengthMs: partitionMs,
    spareRouters: 0,
    actions: [
      { atMs: 0, what: "the routers are cut in two halves", apply: (controls) => controls.partition(groups) },
      { atMs: partitionMs, what: "the halves are connected again", apply: (controls) => controls.heal() },
    ],
  };
}

function draftRouterLoss({ routers }: FaultPlanOptions, random: Random): Draft {
  const router = random.integer(routers);
  return {
    lengthMs: routerLossMs,
    spareRouters: 0,
    actions: [
      { atMs: 0, what: `router ${router} is killed`, apply: (controls) => controls.killRouter(router) },
      { atMs: routerLossMs, what: `router ${router} is back`, apply: (controls) => controls.startRouter(router) },
    ],
  };
}

function draftJoin({ routers }: FaultPlanOptions): Draft {
  const action = {
    atMs: 0,
    what: "one router more joins",
    apply: (fleet: FleetControls) => fleet.startRouter(routers),
  };
  return { lengthMs: joinMs, spareRouters: 1, actions: [action] };
}

function draftRollingRestart({ routers }: FaultPlanOptions): Draft {
  const actions = Array.from({ length: routers }, (_, router) => {
    const atMs = router * restartPeriodMs;
    return [
      { atMs, what: `router ${router} leaves`, apply: (controls: FleetControls) => controls.leaveRouter(router) },
      {
        atMs: atMs + restartDownMs,
        what: `router ${router} starts again`,
        apply: (controls: FleetControls, scheduler: Scheduler) => startOnceEnded(router, controls, scheduler),
      },
    ];
  });
  return { lengthMs: routers * restartPeriodMs, spareRouters: 0, actions: actions.flat() };
}

function draftEngineChurn({ engines }: FaultPlanOptions, random: Random): Draft {
  const hit = drawSome(engines, Math.max(1, Math.round(engines * churnShare)), random);
  const actions = hit.map((engine, at) => {
    const atMs = at * churnPeriodMs;
    return [
      { atMs, what: `engine ${engine} is killed`, apply: (controls: FleetControls) => controls.killEngine(engine) },
      {
        atMs: atMs + engineDownMs,
        what: `engine ${engine} starts again`,
        apply: (controls: FleetControls) => controls.startEngine(engine),
      },
    ];
  });
  return { lengthMs: hit.length * churnPeriodMs, spareRouters: 0, actions: actions.flat() };
}

function draftSlow({ share, factor }: typeof slowEngines) {
  return ({ engines }: FaultPlanOptions, random: Random): Draft => {
    const actions = drawSome(engines, Math.max(1, Math.round(engines * share)), random).map((engine) => ({
      atMs: 0,
      what: `engine ${engine} takes ${factor.toFixed(1)} times as long`,
      apply: (controls: FleetControls) => controls.slowEngine(engine, factor),
    }));
    return { lengthMs: undefined, spareRouters: 0, actions };
  };
}

/** Restarts a router once it has drained. */
function startOnceEnded(router: number, controls: FleetControls, scheduler: Scheduler, tries = maxStartTries): void {
  if (!controls.isRouterUp(router)) controls.startRouter(router);
  else if (tries > 1) scheduler.after(startRetryMs, () => startOnceEnded(router, controls, scheduler, tries - 1));
}

/** `count` distinct numbers below `bound`. */
function drawSome(bound: number, count: number, random: Random): number[] {
  const left = Array.from({ length: bound }, (_, number) => number);
  return Array.from({ length: count }, () => left.splice(random.integer(left.length), 1)[0]!);
}
