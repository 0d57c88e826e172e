import { didYouMean } from "@espalier/core";
import type { Knee, LinkModel, Scenario, ScenarioVariant, Sharing } from "@espalier/simulator";
import { UsageError } from "../cli/read-flags.ts";
import { writeNote } from "../output.ts";
import { executeJobs, type JobFailure } from "./execute-jobs.ts";
import type { KneeJob, RunJob } from "./run-job.ts";
import type { RunSelection } from "./simulate-options.ts";
import { hasStatePerRouter, isBlind, type SimulatedScenario } from "./simulated-scenario.ts";

/** Maximum runs of one command. */
export const maxPlannedRuns = 8_000;

/** The knee of a fleet, from its search. */
type KneeOf = (job: KneeJob) => number;

/** Part of every comparison, because it spreads load without any knowledge. */
const yardstick = "random";

/** One fleet under one load; its runs are compared with each other. */
interface FleetCase {
  readonly variant: ScenarioVariant | undefined;
  readonly engines: number;
  readonly routers: readonly number[];
}

/**
 * Plans the runs of a selection; those to compare are consecutive. For each fleet and load, the policies follow in the
 * order given. When several routers share state, each policy is preceded by its run in one all-knowing router. `random`
 * comes first. Identical runs are made once.
 *
 * @param kneeOf scale of the knee, called when loads are given
 * @throws UsageError for anything that the scenario lacks, and for more than `maxPlannedRuns` runs
 */
export function planRuns(selection: RunSelection, scenario: Scenario, kneeOf: KneeOf): readonly RunJob[] {
  const policies = selection.policies ?? scenario.policies;
  const seeds = Array.from({ length: selection.seeds }, (_, at) => at + 1);
  const named = policies.includes(yardstick) ? policies : [yardstick, ...policies];
  checkCount(selection, scenario, named.length);
  const jobs = fleetCases(selection, scenario).flatMap((fleet) => {
    const setups = {
      sharings: selection.sharing ?? usualSharing(selection, scenario, fleet.variant),
      linkModels: selection.links,
      linkDelaysMs: selection.linkDelaysMs ?? [undefined],
    };
    return loadsOf(selection, scenario, fleet, kneeOf).flatMap((load) =>
      named.flatMap((policy) =>
        setupsOf(policy, fleet.routers, setups).flatMap((setup) =>
          seeds.map((seed): RunJob => ({ kind: "run", ...base(selection, fleet, policy, seed), ...setup, ...load })),
        ),
      ),
    );
  });
  if (jobs.length > maxPlannedRuns) throw tooMany(jobs.length);
  return jobs;
}

/**
 * Plans the searches for knees that a selection needs first: one per fleet, with the named policy or else the
 * scenario's last one, in one all-knowing router, with seed 1. None when no loads are given.
 *
 * @throws UsageError for a closed loop, which has no knee
 */
export function planKnees(selection: RunSelection, scenario: Scenario): readonly KneeJob[] {
  if (selection.loads === undefined) return [];
  if (!scenario.isOpenLoop)
    throw new UsageError(`--load: ${scenario.name} is a closed loop, in which clients wait: it has no knee`);
  return fleetCases(selection, scenario).map((fleet) => kneeJob(selection, scenario, fleet));
}

function kneeJob(selection: RunSelection, scenario: Scenario, fleet: FleetCase): KneeJob {
  const policy = selection.kneePolicy ?? scenario.policies.at(-1) ?? "predicted_latency";
  return { kind: "knee", ...base(selection, fleet, policy, 1), ...allKnowing };
}

function base(selection: RunSelection, { variant, engines }: FleetCase, policy: string, seed: number) {
  const { source, requests, durationS, admission, objectives } = selection;
  return { source, variant: variant?.name, policy, engines, seed, requests, durationS, admission, objectives };
}

function fleetCases({ variants, routers, engines }: RunSelection, scenario: Scenario): readonly FleetCase[] {
  const chosen =
    variants === undefined
      ? [undefined]
      : variants === "all"
        ? [undefined, ...scenario.variants]
        : variants.map((name) => findVariant(scenario, name));
  return chosen.flatMap((variant) =>
    (engines ?? [variant?.engines ?? scenario.fleet.engines]).map((count) => ({
      variant,
      engines: count,
      routers: routers ?? [variant?.routers ?? scenario.fleet.routers],
    })),
  );
}

/** @throws UsageError for one that the scenario lacks */
export function findVariant(scenario: Scenario, name: string): ScenarioVariant {
  const variant = scenario.variants.find((one) => one.name === name);
  if (variant !== undefined) return variant;
  const known = scenario.variants.map((one) => one.name);
  const choice = known.length === 0 ? "it has none" : `not one of ${known.join(", ")}${didYouMean(name, known)}`;
  throw new UsageError(`--variant: ${JSON.stringify(name)} of ${scenario.name}: ${choice}`);
}

type Load = Pick<RunJob, "load" | "scale" | "users">;

function loadsOf(selection: RunSelection, scenario: Scenario, fleet: FleetCase, kneeOf: KneeOf): readonly Load[] {
  if (selection.users !== undefined) return usersOf(selection.users, scenario, fleet);
  if (selection.loads === undefined) return [{ load: undefined, users: undefined, scale: fleet.variant?.scale ?? 1 }];
  const knee = kneeOf(kneeJob(selection, scenario, fleet));
  return selection.loads.map((load) => ({ load, users: undefined, scale: load * knee }));
}

/** @throws UsageError where the number of users cannot be chosen */
function usersOf(users: readonly number[], { name, users: usual }: Scenario, { variant }: FleetCase): readonly Load[] {
  if (usual === undefined) throw new UsageError(`--users: ${name} has no number of users to choose`);
  if (variant?.createWorkload !== undefined)
    throw new UsageError(`--users: the variant ${variant.name} of ${name} has no number of users to choose`);
  return users.map((count) => ({ load: undefined, users: count, scale: count / usual }));
}

/** The scenario's own, or else the mesh, and the sharing of the variant's published results. Delays are compared with none. */
function usualSharing(
  { linkDelaysMs }: RunSelection,
  { published, sharing: own }: Scenario,
  variant: ScenarioVariant | undefined,
): readonly Sharing[] {
  if (linkDelaysMs !== undefined) return ["none", "mesh"];
  if (own !== undefined) return own;
  const ofVariant = published.filter((result) => result.variant === variant?.name);
  const named = ofVariant.flatMap(({ sharing = "mesh", baselineSharing = "mesh" }) => [sharing, baselineSharing]);
  return [...new Set<Sharing>(["mesh", ...named])];
}

interface Setup {
  readonly routers: number;
  readonly sharing: Sharing;
  readonly links: LinkModel;
  readonly linkDelayMs: number | undefined;
}

/** What is varied where it affects the policy. */
interface Setups {
  readonly sharings: readonly Sharing[];
  readonly linkModels: readonly LinkModel[];
  readonly linkDelaysMs: readonly (number | undefined)[];
}

/** The setups in which a policy runs. Settings that do not affect the policy are not varied. */
function setupsOf(policy: string, routerCounts: readonly number[], { sharings, ...links }: Setups): readonly Setup[] {
  if (isBlind(policy)) {
    const counts = hasStatePerRouter(policy) ? routerCounts : routerCounts.slice(0, 1);
    return counts.map((routers) => ({ ...allKnowing, routers, sharing: "none" }));
  }
  const asked = routerCounts.flatMap((routers) =>
    sharings.flatMap((sharing) => setupsOfSharing(routers, sharing, links)),
  );
  const hasGap = asked.some((setup) => setup.routers > 1 && setup.sharing !== "oracle");
  const setups = hasGap ? [allKnowing, ...asked] : asked;
  return setups.filter((setup, at) => setups.findIndex((other) => isSameSetup(setup, other)) === at);
}

/** One router that sees everything. */
const allKnowing: Setup = { routers: 1, sharing: "oracle", links: "delays", linkDelayMs: undefined };

/** Links concern only what is shared over them, and one router knows everything at once. */
function setupsOfSharing(
  routers: number,
  sharing: Sharing,
  { linkModels, linkDelaysMs }: Omit<Setups, "sharings">,
): readonly Setup[] {
  const isAllKnowing = sharing === "oracle" || (routers === 1 && sharing !== "none" && sharing !== "mesh");
  if (isAllKnowing) return [allKnowing];
  const models = sharing === "mesh" ? linkModels : (["delays"] as const);
  const delaysMs = sharing === "mesh" || sharing === "gossip-1s" ? linkDelaysMs : [undefined];
  return models.flatMap((links) => delaysMs.map((linkDelayMs) => ({ routers, sharing, links, linkDelayMs })));
}

const isSameSetup = (one: Setup, other: Setup): boolean =>
  one.routers === other.routers &&
  one.sharing === other.sharing &&
  one.links === other.links &&
  one.linkDelayMs === other.linkDelayMs;

/** Counts the runs before it creates a large plan. */
function checkCount(selection: RunSelection, scenario: Scenario, policies: number): void {
  const fleets = fleetCases(selection, scenario).length;
  const least = fleets * (selection.loads ?? selection.users ?? [1]).length * policies * selection.seeds;
  if (least > maxPlannedRuns) throw tooMany(least);
}

function tooMany(runs: number): UsageError {
  return new UsageError(`${runs} runs are more than ${maxPlannedRuns}: ask for fewer policies, fleets or seeds`);
}

/** A knee as reported. */
export interface FoundKnee {
  readonly variant?: string;
  readonly engines: number;
  readonly policy: string;
  readonly scale: number;
  /** In the second half of the largest sustained run. */
  readonly requests_per_s?: number;
}

interface PreparedRuns {
  readonly jobs: readonly RunJob[];
  readonly knees: readonly FoundKnee[];
  readonly failures: readonly JobFailure[];
}

const keyOf = ({ variant, engines }: KneeJob): string => JSON.stringify([variant, engines]);

/**
 * Plans the runs of a selection after searching for the knees that it needs. Omits runs of a fleet without a knee.
 *
 * @throws UsageError as `planRuns` and `planKnees` do
 */
export async function prepareRuns(
  selection: RunSelection,
  { scenario }: SimulatedScenario,
  options: { readonly size: number; readonly signal: AbortSignal },
): Promise<PreparedRuns> {
  const searches = planKnees(selection, scenario);
  // Reports errors in the plan before the searches, which take long.
  planRuns(selection, scenario, () => 1);
  const { outcomes: knees, failures } = await executeJobs(searches, { ...options, title: `${scenario.name}, knee` });
  const scales = new Map(searches.map((job, at) => [keyOf(job), knees[at]?.scale]));
  const jobs = planRuns(selection, scenario, (job) => scales.get(keyOf(job)) ?? Number.NaN);
  return {
    jobs: jobs.filter(({ scale }) => !Number.isNaN(scale)),
    knees: searches.flatMap((job, at) => describe(job, knees[at])),
    failures,
  };
}

function describe(job: KneeJob, knee: Knee | undefined): readonly FoundKnee[] {
  if (knee === undefined) return [];
  const { variant, engines, policy } = job;
  const rate = knee.runs.find(({ scale }) => scale === knee.scale)?.load.offeredPerS;
  return [
    {
      ...(variant === undefined ? {} : { variant }),
      ...{ engines, policy, scale: knee.scale },
      ...(rate === undefined ? {} : { requests_per_s: rate }),
    },
  ];
}

/** Reports which jobs failed, and why. */
export function noteFailures(failures: readonly JobFailure[]): void {
  for (const { job, error } of failures) {
    const { kind, variant, policy, routers, engines, sharing, seed } = job;
    const what = kind === "knee" ? "the search for the knee" : `the run of ${policy}, ${sharing}, seed ${seed}`;
    const where = `${variant === undefined ? "" : `${variant}, `}${routers} routers, ${engines} engines`;
    writeNote(`${what} (${where}) failed: ${error.message}`);
  }
}
