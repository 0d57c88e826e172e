import { type EngineParameters, type EnginePreset, enginePresets, type PullLimits } from "@espalier/engine-model";
import { defaultObjectives, type Objectives, type PolicyName, policyCatalogue } from "@espalier/policies";
import { type AdmissionSettings, defaultAdmissionSettings } from "@espalier/routing";
import type { RequestOutcome, SimRequest, Workload } from "./clients/workload.ts";
import { createFaultPlan, type FaultPlan, isPossibleWith, runFaults } from "./faults.ts";
import { Cells } from "./fleet/cells.ts";
import { parametersOfEngine, type SimFleetOptions } from "./fleet/sim-fleet.ts";
import type { SimPoolSettings } from "./fleet/sim-pool.ts";
import { kvLinkOf } from "./fleet/sim-router.ts";
import { type BoundsMeter, createBoundsMeter } from "./measure/cache-bounds.ts";
import { type FleetSample, type RunOptions, type RunRecord, type SimResult, timingOf } from "./run.ts";
import type { ScenarioCells, ScenarioVariant } from "./scenarios/scenario.ts";
import { createClientRegions, type Placement, placeFleet, type RegionOfSession, type Topology } from "./topology.ts";

/** A longer run hangs, or asks for more than its fleet can do. */
const maxDurationMs = 48 * 3_600_000;
const sampleMs = 1_000;
/** Routers' defaults for `disaggregation.min-tokens` and `max-tokens`. */
const usualThreshold = { minTokens: 2_048, maxTokens: 131_072 } as const;

/** Receives the progress of a run. */
export type Progress = (share: number) => void;

/**
 * Runs one fleet in virtual time, from its start until every request is answered. The same options give the same
 * record, except for `wallS`.
 *
 * @param nowMs of the real clock, which measures the cost of the run itself
 * @throws RangeError when the fleet or the scenario is impossible
 */
export async function simulate(options: RunOptions, nowMs: () => number, onProgress?: Progress): Promise<RunRecord> {
  return new Run(options).run(nowMs, onProgress);
}

/** The variant of a run; empty for none. */
function variantOf({ scenario, variant }: Pick<RunOptions, "scenario" | "variant">): Partial<ScenarioVariant> {
  return scenario.variants.find(({ name }) => name === variant) ?? {};
}

/** The preset of the variant, or of the scenario. */
function presetOf(options: RunOptions): EnginePreset {
  return enginePresets[variantOf(options).preset ?? options.scenario.fleet.preset];
}

/** Engine parameters of a run, without overrides per engine. */
export function parametersOf(options: RunOptions): EngineParameters {
  return { ...presetOf(options).parameters, ...options.scenario.fleet.parameters, ...options.parameters };
}

/** How engines pull from each other; undefined where the preset does not say. */
function pullOf(options: RunOptions): PullLimits | undefined {
  const { pull, kvBytesPerToken } = presetOf(options);
  return pull && { ...pull, bytesPerToken: kvBytesPerToken };
}

/** The pool of the variant, if any. */
function poolOf(options: RunOptions): SimPoolSettings | undefined {
  const { kvPool } = variantOf(options);
  return kvPool && { ...kvPool, bytesPerToken: presetOf(options).kvBytesPerToken };
}

/** The given options, else those that the variant sets for the policy. */
function policyOptionsOf(options: RunOptions): Readonly<Record<string, number>> {
  const { policy, policyOptions } = options;
  const { policyOptions: varied = {} } = variantOf(options);
  const known = isPolicy(policy) ? policyCatalogue[policy].options.map(({ name }) => name) : [];
  return policyOptions ?? Object.fromEntries(Object.entries(varied).filter(([name]) => known.includes(name)));
}

/** The given objectives, else those of the variant. */
function objectivesOf(options: RunOptions): Objectives {
  return options.objectives ?? { ...defaultObjectives, ...variantOf(options).slo };
}

const isPolicy = (name: string): name is PolicyName => Object.hasOwn(policyCatalogue, name);

function hasAdmission(options: RunOptions): boolean {
  return options.admission ?? variantOf(options).admission ?? options.scenario.admission ?? false;
}

/** Default admission, with the variant's max cold wait for every class. */
function admissionOf(options: RunOptions): AdmissionSettings {
  const { maxColdWaitS = 0 } = variantOf(options);
  const { classes } = defaultAdmissionSettings;
  return {
    ...defaultAdmissionSettings,
    classes: classes.map((settings) => ({ ...settings, maxColdWaitMs: maxColdWaitS * 1_000 })),
  };
}

/** The order in which the engines of a variant serve their queues. */
function engineOrderOf(options: RunOptions): Pick<SimFleetOptions, "engineOrder"> {
  const { engineOrder = "arrival" } = variantOf(options);
  return { engineOrder };
}

/** One router that sees everything has one cell. */
function cellsOf(options: RunOptions): ScenarioCells {
  const { scenario, sharing } = options;
  const cells = sharing === "oracle" ? undefined : (variantOf(options).cells ?? scenario.fleet.cells);
  return cells ?? { count: 1, balancer: "hash" };
}

/** The regions of a run; undefined when all is equally near. */
function topologyOf(options: RunOptions): Topology | undefined {
  return variantOf(options).topology ?? options.scenario.fleet.topology;
}

/** Cyclic overrides of engines: those of the scenario, and those of their regions. */
function perEngineOf({ scenario, engines }: RunOptions, topology?: Topology, placement?: Placement) {
  const { perEngine = [] } = scenario.fleet;
  if (!topology || !placement) return perEngine;
  return Array.from({ length: engines }, (_, number) => ({
    ...perEngine[number % perEngine.length],
    ...topology.regions[placement.engines[number]!]!.parameters,
  }));
}

/** Engines' roles, and how requests are split between them. */
function splitOf(options: RunOptions): Pick<SimFleetOptions, "roles" | "split"> {
  const { split } = options.scenario;
  if (!split) return {};
  const { roles = split.roles, splitTokens: thresholdTokens, appliesBalance = false } = variantOf(options);
  const link = kvLinkOf(split, presetOf(options).kvBytesPerToken);
  return { roles, split: { link, thresholdTokens, appliesBalance, ...usualThreshold } };
}

/**
 * The fault of a scenario, if any. The oracle, which serves as the reference, has one router, so it has no fault that
 * takes several.
 *
 * @throws RangeError when the fleet is too small for the fault, or the run too short
 */
function faultsOf({ scenario, durationS, routers, engines, seed, sharing }: RunOptions): FaultPlan | undefined {
  const { fault } = scenario;
  if (fault === undefined || (sharing === "oracle" && !isPossibleWith(fault, routers))) return undefined;
  const durationMs = (durationS ?? scenario.durationS ?? 0) * 1_000;
  return createFaultPlan(fault, { routers, engines, durationMs, seed });
}

class Run {
  readonly #fleet: Cells;
  readonly #workload: Workload;
  readonly #faults: FaultPlan | undefined;
  readonly #bounds: BoundsMeter;
  readonly #results: SimResult[] = [];
  readonly #samples: FleetSample[] = [];
  readonly #placement: Placement | undefined;
  readonly #regionOf: RegionOfSession | undefined;
  #startMs = 0;
  #sent = 0;
  #isFinished = false;

  constructor(options: RunOptions) {
    const { scenario, seed, engines, scale, requests, trace, durationS, routers } = options;
    const parameters = parametersOf(options);
    const kvTokens = parameters.blockCount * parameters.blockSize;
    const clients = variantOf(options).createWorkload ?? scenario.createWorkload;
    this.#workload = clients({
      ...{ seed, engines, kvTokens, scale },
      ...(requests === undefined ? {} : { requests }),
      ...(trace === undefined ? {} : { trace }),
      ...(durationS === undefined ? {} : { durationS }),
    });
    this.#faults = faultsOf(options);
    const { count: cells, balancer } = cellsOf(options);
    if (this.#faults && cells > 1) throw new RangeError("faults need one mesh, not a fleet of several cells");
    const timing = timingOf(options);
    const topology = topologyOf(options);
    if (topology && options.linkDelayMs !== undefined) {
      throw new RangeError("the delay between routers is that of their regions, and cannot be another");
    }
    const spareRouters = this.#faults?.spareRouters ?? 0;
    this.#placement = topology && placeFleet(topology, { engines, routers: routers + spareRouters }, timing);
    this.#regionOf = topology && createClientRegions(topology, seed);
    const perEngine = perEngineOf(options, topology, this.#placement);
    this.#bounds = createBoundsMeter({
      capacityBlocks: blocksOf({ parameters, perEngine }, engines) + (poolOf(options)?.blocks ?? 0),
    });
    this.#fleet = new Cells({
      ...{ cells, balancer },
      ...{
        engines,
        parameters,
        perEngine,
        seed,
        policy: options.policy,
        sharing: options.sharing,
        links: options.links,
      },
      routers: routers + spareRouters,
      startedRouters: routers,
      timing,
      ...(this.#placement && { placement: this.#placement }),
      policyOptions: policyOptionsOf(options),
      objectives: objectivesOf(options),
      ...(options.customPolicies && { customPolicies: options.customPolicies }),
      ...(options.without !== undefined && { without: options.without }),
      ...{ pull: pullOf(options), pool: poolOf(options) },
      llmdRule: variantOf(options).llmdRule,
      ...splitOf(options),
      ...engineOrderOf(options),
      ...(hasAdmission(options) && { admission: admissionOf(options) }),
    });
  }

  async run(nowMs: () => number, onProgress: Progress = () => {}): Promise<RunRecord> {
    const fleet = this.#fleet;
    await fleet.start();
    const realStartMs = nowMs();
    const bytesBefore = fleet.bytesSent;
    const { clock, scheduler } = fleet.time;
    this.#startMs = clock.nowMs();
    this.#workload.start({
      clock,
      scheduler,
      send: (request, ended) => this.#send(request, ended),
      finished: () => {
        this.#isFinished = true;
      },
    });
    if (this.#faults) runFaults(this.#faults.actions, { controls: fleet.fleets[0]!, scheduler });
    for (let at = 1; !this.#isOver(); at++) {
      if (at * sampleMs > maxDurationMs) throw new Error("the run has no end: the fleet does not get done");
      await fleet.run(this.#startMs + at * sampleMs);
      this.#sample();
      const share = this.#results.length / Math.max(1, this.#workload.expectedRequests);
      onProgress(this.#isOver() ? 1 : Math.min(1, share));
    }
    const linkBytes = fleet.bytesSent - bytesBefore;
    const engineBusyMs = fleet.engines.reduce((sum, engine) => sum + engine.busyMs, 0);
    const adapterLoads = sumOfKnown(fleet.engines.map((engine) => engine.adapterLoads));
    const wallS = (nowMs() - realStartMs) / 1_000;
    await fleet.stop();
    return {
      results: this.#results,
      samples: this.#samples,
      durationMs: this.#results.reduce((last, { endMs }) => Math.max(last, endMs), 0),
      adapterLoads,
      engineBusyMs,
      linkBytes: linkBytes === 0 ? Number.NaN : linkBytes,
      faultMs: this.#faults && { fromMs: this.#faults.fromMs, toMs: this.#faults.toMs },
      bounds: this.#bounds.result(),
      wallS,
    };
  }

  #isOver(): boolean {
    return this.#isFinished && this.#results.length === this.#sent;
  }

  #send(asked: SimRequest, ended: (outcome: RequestOutcome) => void): void {
    const sentMs = this.#fleet.time.clock.nowMs() - this.#startMs;
    const region = asked.region ?? this.#regionOf?.(asked.session, sentMs);
    const request = region === undefined ? asked : { ...asked, region };
    const { chain: _, ...kept } = request;
    this.#sent++;
    this.#bounds.add(request);
    this.#fleet.send(request, (outcome, router) => {
      const { firstTokenMs, endMs } = outcome;
      this.#results.push({
        ...outcome,
        ...{ request: kept, sentMs, router },
        ...this.#wayOf(region, router, outcome.engine),
        firstTokenMs: firstTokenMs - this.#startMs,
        endMs: endMs - this.#startMs,
      });
      ended(outcome);
    });
  }

  /** The network's part of an answer; nothing without regions. */
  #wayOf(region = 0, router: number, engine: number): Pick<SimResult, "networkMs" | "isCrossed"> {
    const placement = this.#placement;
    if (!placement || router < 0 || engine < 0) return {};
    const [at, to] = [placement.routers[router]!, placement.engines[engine]!];
    const wayMs = placement.clientDelayMs(region, at) + placement.delayMs(at, to);
    return { networkMs: 2 * wayMs, isCrossed: to !== region };
  }

  #sample(): void {
    const { engines, time } = this.#fleet;
    const stats = engines.map((engine) => engine.stats());
    this.#samples.push({
      atMs: time.clock.nowMs() - this.#startMs,
      load: Float64Array.from(stats, ({ running, waiting }) => running + waiting),
      kvUse: Float64Array.from(stats, ({ kvUse }) => kvUse),
    });
  }
}

/** Blocks of all engines together. */
function blocksOf(fleet: Pick<SimFleetOptions, "parameters" | "perEngine">, engines: number): number {
  let blocks = 0;
  for (let number = 0; number < engines; number++) {
    const { blockCount, cpuBlocks = 0 } = parametersOfEngine(fleet, number);
    blocks += blockCount + cpuBlocks;
  }
  return blocks;
}

/** NaN where nothing is known. */
function sumOfKnown(values: readonly number[]): number {
  const known = values.filter((value) => !Number.isNaN(value));
  return known.length === 0 ? Number.NaN : known.reduce((sum, value) => sum + value, 0);
}
