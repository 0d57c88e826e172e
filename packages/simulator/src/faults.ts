import { type Cancel, createSeededRandom, type Random, type Scheduler } from "@espalier/common";

export const faultNames = [
  "partition",
  "router-loss",
  "join-under-load",
  "rolling-restart",
  "engine-churn",
  "slow-engines",
] as const;

export type FaultName = (typeof faultNames)[number];

/** Something done to a fleet at a moment of the run. */
export interface FaultAction {
  /** From the start of the run, in virtual milliseconds. */
  readonly atMs: number;
  /** For people. */
  readonly what: string;
  /** @param scheduler for what cannot be done yet at that moment */
  apply(controls: FleetControls, scheduler: Scheduler): void;
}

/** What goes wrong in a run, and when. */
export interface FaultPlan {
  readonly name: FaultName;
  /** The fault begins. */
  readonly fromMs: number;
  /** It is over: what is measured afterwards is recovery. */
  readonly toMs: number;
  /** Routers that the fleet needs beyond those of the run; they are down until the plan starts them. */
  readonly spareRouters: number;
  /** In order of time. */
  readonly actions: readonly FaultAction[];
}

interface FaultPlanOptions {
  readonly routers: number;
  readonly engines: number;
  /** In which requests are sent; the fault lies in its middle. */
  readonly durationMs: number;
  /** Draws which routers and engines are hit. */
  readonly seed: number;
}

/** What can be done to a simulated fleet while it runs. Routers and engines by number, from 0. */
export interface FleetControls {
  readonly routerCount: number;
  readonly engineCount: number;
  /** Groups of routers hear nothing of each other. */
  partition(groups: readonly (readonly number[])[]): void;
  /** Nothing gets from one router to another; the other direction is left. */
  cutLink(from: number, to: number): void;
  mendLink(from: number, to: number): void;
  /** Breaks the connections between two routers; they may dial again. */
  resetLink(one: number, other: number): void;
  /** Of all links between routers. */
  setLinkSpeed(speed: { readonly delayMs: number; readonly jitterMs: number }): void;
  /** Undoes partitions, cuts and pauses, and loses no more events; speeds, dead routers and dead engines stay. */
  heal(): void;
  isRouterUp(router: number): boolean;
  /** Its process is gone without a word. Requests through it fail. */
  killRouter(router: number): void;
  /** It says goodbye and ends; requests through it are answered before. */
  leaveRouter(router: number): void;
  /** A new life of a router that ended, under its id. */
  startRouter(router: number): void;
  /** SIGSTOP and SIGCONT. */
  pauseRouter(router: number): void;
  resumeRouter(router: number): void;
  /** Its wall clock is off by so much more. */
  jumpClock(router: number, byMs: number): void;
  /** Its clocks run so much faster, as a share: 0.001 is a millisecond a second. */
  setDrift(router: number, rate: number): void;
  isEngineUp(engine: number): boolean;
  /** Its process is gone, and its cache; requests in it fail. */
  killEngine(engine: number): void;
  /** A new life of an engine, empty. */
  startEngine(engine: number): void;
  /** Its steps take so many times as long from now on, in its later lives too; 1 is as at first. */
  slowEngine(engine: number, factor: number): void;
  /** The next messages of KV events reach no reader, unless they are replayed. */
  loseEvents(engine: number, messages: number): void;
  /** Whether the engine tells what a reader missed. */
  setReplay(engine: number, isOn: boolean): void;
}

/**
 * A named plan, in the middle of a run, or from there to its end.
 *
 * @throws RangeError when the fleet is too small for it, or the run too short
 */
export function createFaultPlan(name: FaultName, options: FaultPlanOptions): FaultPlan {
  if (!canBefall(name, options.routers)) throw new RangeError(`${name} needs at least 2 routers`);
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

/** Whether there are routers enough for it. */
export function canBefall(name: FaultName, routers: number): boolean {
  return routers >= 2 || !ofSeveralRouters.has(name);
}

/**
 * Does to a fleet what a plan says, each action at its moment. To be called at the start of the run.
 *
 * @param done told of each action when it has been done
 * @returns cancels what is still to come
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

/** How long a new router may take until it counts as one of the others. */
const joinMs = 5_000;

/** Between the restarts of two routers, and between a router's goodbye and its next life. */
const restartPeriodMs = 5_000;

const restartDownMs = 2_000;

/** How often it is looked whether a router that leaves has ended; together longer than any grace period. */
const startRetryMs = 250;

const maxStartTries = 1_000;

const churnPeriodMs = 2_000;

/** A killed engine's process comes back after this. */
const engineDownMs = 1_000;

const churnShare = 0.05;

const slowShare = 0.25;

const slowFactor = 5;

/** What befalls a router while others go on. */
const ofSeveralRouters: ReadonlySet<FaultName> = new Set(["partition", "router-loss", "rolling-restart"]);

type Draft = Omit<FaultPlan, "name" | "fromMs" | "toMs"> & {
  /** Action times count from the beginning of the fault. Undefined for one that goes on to the end. */
  readonly lengthMs: number | undefined;
};

const drafts: Readonly<Record<FaultName, (options: FaultPlanOptions, random: Random) => Draft>> = {
  partition: draftPartition,
  "router-loss": draftRouterLoss,
  "join-under-load": draftJoin,
  "rolling-restart": draftRollingRestart,
  "engine-churn": draftEngineChurn,
  "slow-engines": draftSlowEngines,
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
      { atMs: partitionMs, what: "the halves hear each other again", apply: (controls) => controls.heal() },
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
  needEngines("engine-churn", engines);
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

function draftSlowEngines({ engines }: FaultPlanOptions, random: Random): Draft {
  needEngines("slow-engines", engines);
  const actions = drawSome(engines, Math.max(1, Math.round(engines * slowShare)), random).map((engine) => ({
    atMs: 0,
    what: `engine ${engine} takes ${slowFactor} times as long`,
    apply: (controls: FleetControls) => controls.slowEngine(engine, slowFactor),
  }));
  return { lengthMs: undefined, spareRouters: 0, actions };
}

function needEngines(name: FaultName, engines: number): void {
  if (engines < 2) throw new RangeError(`${name} needs another engine to go on with`);
}

/** A router that leaves answers first what it has; its next life cannot begin before. */
function startOnceEnded(router: number, controls: FleetControls, scheduler: Scheduler, tries = maxStartTries): void {
  if (!controls.isRouterUp(router)) controls.startRouter(router);
  else if (tries > 1) scheduler.after(startRetryMs, () => startOnceEnded(router, controls, scheduler, tries - 1));
}

/** So many different numbers below the bound. */
function drawSome(bound: number, count: number, random: Random): number[] {
  const left = Array.from({ length: bound }, (_, number) => number);
  return Array.from({ length: count }, () => left.splice(random.integer(left.length), 1)[0]!);
}
