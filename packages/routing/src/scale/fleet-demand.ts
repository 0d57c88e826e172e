import { type Cancel, type Clock, counterBy, type Meter, type Scheduler, type Startable } from "@espalier/core";
import { closed, type Described, Type } from "@espalier/core/schema";
import type { Note, NoteChannel } from "@espalier/shared-tree";
import type { WaitingWork } from "../admission/index.ts";
import type { RoutingTarget } from "../routing-target.ts";
import type { PoolWork } from "../work/pool-work.ts";
import {
  type DemandedRole,
  type DemandSample,
  engineRoles,
  maxModelBytes,
  maxNotedModels,
  readDemandNote,
  writeDemandNote,
} from "./demand-note.ts";
import { SteadyCount } from "./steady-count.ts";

/** One pool as its demand is computed. */
export interface DemandedPool {
  /** Model whose engines serve it: an adapter's base model. */
  readonly model: string;
  readonly work: PoolWork;
  /** What waits for it in this router. */
  readonly waiting: readonly WaitingWork[];
}

/** The engines of one model. */
export interface DemandedEngines {
  readonly targets: readonly RoutingTarget[];
  /** Data-parallel ranks of one of them. */
  readonly ranks: number;
  /** Requests that any router has in flight there. */
  readonly inFlight: number;
}

export interface FleetDemandOptions {
  /** The channel for notes; undefined where nothing is shared. */
  readonly channel: NoteChannel | undefined;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly meter: Meter;
  /** Share of an engine's time that the load may take. */
  readonly utilization: number;
  /** Time in which requests that wait without a deadline have to begin. */
  readonly catchUpMs: number;
  /** Time without requests after which a model needs no engine. */
  readonly idleMs: number;
  readonly pools: () => readonly DemandedPool[];
  readonly enginesOf: (model: string) => DemandedEngines;
}

/** How many engines the load of a model needs, and by what. */
export const modelDemand = closed({
  model: Type.String(),
  /** 0 for a model that nobody has used for a while. */
  desired: closed(
    { both: Type.Integer(), prefill: Type.Integer(), decode: Type.Integer() },
    { description: "Engines that the load needs, by role." },
  ),
  /** Before it is divided by the utilization and rounded up. */
  load: closed(
    { both: Type.Number(), prefill: Type.Number(), decode: Type.Number() },
    { description: "Load in fully used engines." },
  ),
  engines: Type.Integer({ description: "Engines that can take requests." }),
  requestsPerS: Type.Number({ description: "Arriving requests per second." }),
  /** In milliseconds: prompt and answer. */
  costMs: Type.Number({ description: "Engine time per request, in milliseconds." }),
  waiting: Type.Integer({ description: "Requests queued in routers." }),
  inFlight: Type.Integer({ description: "Requests in flight at engines." }),
  batch: Type.Number({ description: "Concurrent requests per engine." }),
  msPerOutputToken: Type.Number({ description: "Time per output token, as seen by clients." }),
});

export type ModelDemand = Described<typeof modelDemand>;

/** How often the demand is computed, and reported to other routers. */
const demandEveryMs = 1_000;
/** After this long without news a router's demand no longer counts. */
export const demandLeaseMs = 5_000;
/** Models whose demand is known. */
export const maxDemandedModels = 256;
/** Routers whose demand is kept; beyond it, the one heard first is forgotten. */
export const maxDemandingRouters = 256;
/** A waiting request has to begin within this time at the earliest: engines do not come faster. */
const leastDueMs = 1_000;
/** Time of an output token, and requests that an engine serves together, until they are measured: see `outputTokenWork`. */
const usualMsPerOutputToken = 22;
const usualBatch = 55;
/** Largest estimate of the requests that an engine serves together. */
const maxBatch = 1_024;
/** Below this share of memory in use, the requests that would fill it cannot be estimated. */
const leastKvUse = 0.05;
const noteKey = "demand";

/** What is measured of one model: here, and at other routers. */
interface MeasuredModel {
  readonly model: string;
  readonly work: PoolWork | undefined;
  readonly mine: DemandSample | undefined;
  readonly heard: readonly DemandSample[];
}

interface Heard {
  readonly samples: ReadonlyMap<string, DemandSample>;
  readonly writtenMs: number;
}

/**
 * How many engines the load of each model needs, over all routers: from work, not from what engines are busy with. By the
 * utilization law (Denning and Buzen, "The Operational Analysis of Queueing Network Models", 1978) requests that arrive at
 * a rate and take a time each keep rate times time engines busy. What waits adds the engines that let all of it begin in
 * time: the greatest ratio of the work due by a time to that time (the processor demand criterion for deadlines: Baruah,
 * Rosier and Howell, "Algorithms and Complexity Concerning the Preemptive Scheduling of Periodic, Real-Time Tasks on One
 * Processor", 1990). The sum is divided by the desired utilization.
 *
 * Each router measures its own requests. What the others measure arrives as notes, and a router that falls silent counts
 * for five more seconds.
 */
export class FleetDemand implements Startable {
  readonly #options: FleetDemandOptions;
  readonly #counts = new Map<string, Record<DemandedRole, SteadyCount>>();
  readonly #heard = new Map<string, Heard>();
  readonly #received: (outcome: "taken" | "invalid") => void;
  readonly #meters: ReturnType<typeof createDemandMeters>;
  #demands: readonly ModelDemand[] = [];
  #cancels: readonly Cancel[] = [];

  constructor(options: FleetDemandOptions) {
    this.#options = options;
    this.#meters = createDemandMeters(options.meter);
    this.#received = counterBy(
      options.meter,
      "outcome",
      "espalier_scale_demand_received_total",
      "Load reports of other routers, by outcome.",
    );
  }

  async start(): Promise<void> {
    const { channel, scheduler } = this.#options;
    this.#cancels = [
      scheduler.every(demandEveryMs, () => this.#compute()),
      ...(channel ? [channel.onNote((note) => this.#receive(note))] : []),
    ];
  }

  async stop(): Promise<void> {
    for (const cancel of this.#cancels) cancel();
  }

  /** By model, as of the last second. */
  get demands(): readonly ModelDemand[] {
    return this.#demands;
  }

  /**
   * A model's demand. A request that waits for a first engine must not wait for the next computation as well, so a model
   * without demand is looked at anew.
   */
  of(model: string): ModelDemand | undefined {
    const find = (): ModelDemand | undefined => this.#demands.find((one) => one.model === model);
    if (!find()?.desired.both) this.#compute();
    return find();
  }

  #compute(): void {
    const { channel, clock } = this.#options;
    const nowMs = clock.nowMs();
    const pools = this.#options.pools();
    const own = this.#measure(pools);
    for (const [router, { writtenMs }] of this.#heard) {
      if (nowMs - writtenMs > demandLeaseMs) this.#heard.delete(router);
    }
    const others = [...this.#heard.values()];
    const models = new Set([...own.keys(), ...others.flatMap(({ samples }) => [...samples.keys()])]);
    for (const model of this.#counts.keys()) {
      if (models.has(model) || !this.#counts.delete(model)) continue;
      this.#meters({ model, desired: byRole(() => 0), load: byRole(() => 0), waiting: 0 });
    }
    const reported: DemandSample[] = [];
    this.#demands = [...models].slice(0, maxDemandedModels).map((model) => {
      const heard = others.flatMap(({ samples }) => samples.get(model) ?? []);
      const mine = own.get(model);
      const work = pools.find((pool) => pool.model === model)?.work;
      const { demand, counted } = this.#demandOf({ model, work, mine, heard });
      if (mine) reported.push({ ...mine, desired: counted });
      this.#meters(demand);
      return demand;
    });
    const most = reported.sort((one, other) => other.prefill - one.prefill).slice(0, maxNotedModels);
    if (most.length > 0) channel?.post(noteKey, writeDemandNote(most));
  }

  /** What this router measures, by model. */
  #measure(pools: readonly DemandedPool[]): ReadonlyMap<string, DemandSample> {
    const own = new Map<string, DemandSample>();
    for (const pool of pools) {
      const { model, work, waiting } = pool;
      const { demand } = work;
      if (new TextEncoder().encode(model).length > maxModelBytes) continue;
      const isResting = demand.idleMs > this.#options.idleMs && demand.requestsPerS < leastRate;
      // Answers may be long.
      if (isResting && waiting.length === 0 && this.#options.enginesOf(model).inFlight === 0) continue;
      const { requestsPerS, promptMs, outputTokens } = demand;
      const before = own.get(model) ?? { ...nothing, model };
      const { prefill, outputPerS } = this.#dueRate(pool);
      own.set(model, {
        model,
        requestsPerS: before.requestsPerS + requestsPerS,
        prefill: before.prefill + (requestsPerS * promptMs) / 1_000,
        outputPerS: before.outputPerS + requestsPerS * outputTokens,
        waiting: before.waiting + waiting.length,
        waitingPrefill: before.waitingPrefill + prefill,
        waitingOutputPerS: before.waitingOutputPerS + outputPerS,
        idleMs: Math.min(before.idleMs, demand.idleMs),
        desired: before.desired,
      });
    }
    return own;
  }

  /** The rate at which what waits has to be worked on, so that each request begins in time. */
  #dueRate({ work, waiting }: DemandedPool): { readonly prefill: number; readonly outputPerS: number } {
    const { catchUpMs } = this.#options;
    const due = waiting
      .map(({ uncachedTokens, outputTokens, leaveInMs }) => ({
        workMs: uncachedTokens * work.demand.msPerUncachedToken,
        outputTokens: Math.min(outputTokens, work.demand.outputTokens),
        byMs: Math.max(leastDueMs, Math.min(catchUpMs, leaveInMs)),
      }))
      .sort((one, other) => one.byMs - other.byMs);
    let workMs = 0;
    let prefill = 0;
    for (const each of due) {
      workMs += each.workMs;
      prefill = Math.max(prefill, workMs / each.byMs);
    }
    const output = due.reduce((sum, { outputTokens }) => sum + outputTokens, 0);
    return { prefill, outputPerS: (1_000 * output) / catchUpMs };
  }

  #demandOf({ model, work, mine, heard }: MeasuredModel) {
    const { clock, utilization, idleMs, enginesOf } = this.#options;
    const samples = mine ? [mine, ...heard] : heard;
    const sum = (name: Exclude<keyof DemandSample, "model" | "desired">): number =>
      samples.reduce((total, sample) => total + sample[name], 0);
    const { targets, ranks, inFlight } = enginesOf(model);
    const batch = batchOf(targets, work, clock.nowMs());
    const msPerOutputToken = work?.pace.msPerToken || usualMsPerOutputToken;
    // An engine writes a token for each of `batch` answers in the time of one.
    const engineMsPerToken = msPerOutputToken / batch;
    // Each rank of an engine takes requests as an engine of its own would.
    const prefill = (sum("prefill") + sum("waitingPrefill")) / ranks;
    const decode = ((sum("outputPerS") + sum("waitingOutputPerS")) * engineMsPerToken) / 1_000 / ranks;
    const load = { both: prefill + decode, prefill, decode };
    const counts = this.#counts.get(model) ?? newCounts();
    this.#counts.set(model, counts);
    const waiting = sum("waiting");
    const isActive = waiting > 0 || inFlight > 0 || samples.some((sample) => sample.idleMs < idleMs);
    const counted = byRole((role) => counts[role].take(load[role] / utilization, clock.nowMs()));
    const desired = byRole((role) =>
      isActive ? Math.max(1, counted[role], ...heard.map((sample) => sample.desired[role])) : 0,
    );
    const requestsPerS = sum("requestsPerS");
    const arrivingMs = 1_000 * sum("prefill") + sum("outputPerS") * engineMsPerToken;
    const usable = new Set(targets.filter((target) => target.usable).map(({ engine }) => engine.id));
    const demand: ModelDemand = {
      ...{ model, desired, load, engines: usable.size, requestsPerS, waiting, inFlight, batch, msPerOutputToken },
      costMs: requestsPerS > 0 ? arrivingMs / requestsPerS : 0,
    };
    return { demand, counted };
  }

  #receive({ key, bytes, ageMs, origin }: Note): void {
    if (key !== noteKey) return;
    try {
      const samples = new Map(readDemandNote(bytes).map((sample) => [sample.model, sample]));
      const [first] = this.#heard.keys();
      if (!this.#heard.has(origin.router) && this.#heard.size >= maxDemandingRouters && first !== undefined)
        this.#heard.delete(first);
      this.#heard.set(origin.router, { samples, writtenMs: this.#options.clock.nowMs() - ageMs });
      this.#received("taken");
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      this.#received("invalid");
    }
  }
}

/** Below it, in requests per second, a pool that rests is forgotten. */
const leastRate = 1e-4;

const nothing: Omit<DemandSample, "model"> = {
  ...{ requestsPerS: 0, prefill: 0, outputPerS: 0, waiting: 0, waitingPrefill: 0, waitingOutputPerS: 0 },
  idleMs: Number.POSITIVE_INFINITY,
  desired: { both: 0, prefill: 0, decode: 0 },
};

const newCounts = (): Record<DemandedRole, SteadyCount> => byRole(() => new SteadyCount());

function byRole<Value>(of: (role: DemandedRole) => Value): Record<DemandedRole, Value> {
  const [both, prefill, decode] = engineRoles;
  return { both: of(both), prefill: of(prefill), decode: of(decode) };
}

/**
 * Requests that an engine serves together: its batch limit, or those that would fill its memory as those that run now do,
 * whichever is less; the mean over the engines that show it.
 */
function batchOf(targets: readonly RoutingTarget[], work: PoolWork | undefined, nowMs: number): number {
  let sum = 0;
  let count = 0;
  for (const target of targets) {
    const { running, kvUse } = target.signals;
    const byMemory = running >= 1 && kvUse >= leastKvUse ? running / kvUse : Number.POSITIVE_INFINITY;
    const limit = work?.demand.limits.of(target, nowMs) ?? Number.NaN;
    const batch = Math.min(byMemory, Number.isNaN(limit) ? Number.POSITIVE_INFINITY : limit);
    if (batch === Number.POSITIVE_INFINITY) continue;
    sum += Math.min(maxBatch, Math.max(1, batch));
    count += 1;
  }
  return count > 0 ? sum / count : usualBatch;
}

type MeteredDemand = Pick<ModelDemand, "model" | "desired" | "load" | "waiting">;

function createDemandMeters(meter: Meter): (demand: MeteredDemand) => void {
  const desired = meter.gauge(
    "espalier_scale_desired_engines",
    "Engines that the mesh-wide load needs, by model and role: both, prefill, decode.",
    ["model", "role"],
  );
  const load = meter.gauge("espalier_scale_load_engines", "Mesh-wide load in fully used engines, by model and role.", [
    "model",
    "role",
  ]);
  const waiting = meter.gauge("espalier_scale_waiting_requests", "Requests queued in all routers, by model.", [
    "model",
  ]);
  return (demand) => {
    for (const role of engineRoles) {
      desired.series(demand.model, role).set(demand.desired[role]);
      load.series(demand.model, role).set(demand.load[role]);
    }
    waiting.series(demand.model).set(demand.waiting);
  };
}
