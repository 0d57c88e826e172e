import { layOutTable, systemClock, systemScheduler } from "@espalier/core";
import { startBenchEngine } from "../data-path/bench-engine.ts";
import { concurrency, smallBodyBytes, steadyPerSecond } from "../data-path/loads.ts";
import { prepareRequest } from "../data-path/prepared-request.ts";
import { pinProcess, priorityParam, reserveCore } from "../support/cpu-pinning.ts";
import { type Figures, type RunSummary, summarizeRuns } from "../support/median-spread.ts";
import { startMeshFleet } from "../support/mesh-fleet.ts";
import { type Param, positive, quick, readWhole, runs, text, whole } from "../support/params.ts";
import { repeatRuns } from "../support/repeat-runs.ts";
import { defineSuite, reportOf, withExtremes } from "../support/suite.ts";
import { measureDirect, measureRouters } from "./routers-run.ts";

/** One number of routers, and what they share. */
export interface RoutersFleet {
  readonly routers: number;
  readonly sharing: "mesh" | "none";
}

/** The figures of a fleet in each run. */
export interface MeasuredRouters {
  readonly fleet: RoutersFleet;
  readonly runs: readonly Figures[];
}

interface RoutersRow extends RoutersFleet, RunSummary {}

const standardCounts = [1, 2, 4, 8];
const maxRouters = 64;
/** The size of a message of a long request. */
const messageBytes = 2_400;

const countsParam: Param<readonly number[]> = {
  ...{ placeholder: "LIST", help: "how many routers, in turn", standard: standardCounts.join(",") },
  read: (flag, given, isQuick) =>
    given?.split(",").map((count) => readWhole(flag, count, { most: maxRouters })) ??
    standardCounts.slice(0, isQuick ? 2 : undefined),
};

/** What several routers cost, and what of it is the mesh. */
export const routersSuite = defineSuite({
  name: "routers",
  summary: "requests a second, CPU and added latency of 1, 2, 4 and 8 routers, with the mesh and without",
  about: `
1, 2, 4 and 8 routers, each a process, all pinned to one core, with load generator and engines on the others. Requests go
to them in turn, each a new prompt. At saturation: requests a second, and CPU time a request, of all routers
together. At ${steadyPerSecond} a second: the same CPU time, and what clients wait more than without a router. \`mesh_share\` is the
share of the CPU time that as many routers that share nothing do not take.`,
  params: {
    routers: countsParam,
    duration: positive({
      help: "seconds at saturation; latencies take twice as long",
      ...{ standard: 3, quick: 0.6, most: 1_000 },
    }),
    body: whole({ placeholder: "BYTES", help: "of each request", standard: smallBodyBytes, least: 1_024, most: 1e6 }),
    policy: text("NAME", "how the routers choose", "predicted_latency"),
    priority: priorityParam,
    runs: runs(3, 100, "runs with fresh processes, of which the medians count"),
    quick: quick("one short run of 1 and 2 routers"),
  },
  async measure({ routers, duration, body: bodyBytes, policy, priority, runs, quick }, note) {
    const plan = reserveCore(priority);
    note(plan ? `pinned: all routers on core ${plan.router.join(",")}` : "not pinned: no taskset, or only one core");
    const sizes = { durationMs: duration * 1_000, warmUpMs: quick ? 200 : 2_500, concurrency };
    const ports = { clock: systemClock, scheduler: systemScheduler };
    const request = prepareRequest({ bodyBytes, messages: Math.max(2, Math.floor(bodyBytes / messageBytes)) });
    const engine = await startBenchEngine();
    const measured = routersFleets(routers).map((fleet) => ({
      ...{ fleet, runs: [] as Figures[] },
    }));
    try {
      await repeatRuns({ runs, note }, async (seed, noteRun) => {
        const load = { ...sizes, request, seed };
        const directMs = await measureDirect(engine.urls, load, engine.pid);
        for (const { fleet, runs: done } of measured) {
          const started = await startMeshFleet({ ...fleet, engines: engine.urls, policy }, ports);
          try {
            if (plan) for (const pid of started.pids) pinProcess(pid, plan.router);
            done.push(await measureRouters(started, load, { enginePid: engine.pid, directMs }));
          } finally {
            await started.stop();
          }
          noteRun(`${nameOf(fleet)}: ${done.at(-1)?.cpu_us_per_request?.toFixed(0)} us of CPU a request`);
        }
      });
    } finally {
      await engine.stop();
    }
    const params = { ...sizes, policy, runs, body_bytes: bodyBytes, steady_per_second: steadyPerSecond };
    return routersReport({ ...params, pinned: plan !== undefined, node: process.versions.node }, measured);
  },
  table: routersTable,
});

/** Each number with the mesh, and without for comparison; one router has nobody to share with. */
export function routersFleets(counts: readonly number[]): readonly RoutersFleet[] {
  return counts.flatMap((routers): readonly RoutersFleet[] =>
    routers === 1
      ? [{ routers, sharing: "none" }]
      : [
          { routers, sharing: "mesh" },
          { routers, sharing: "none" },
        ],
  );
}

const nameOf = ({ routers, sharing }: RoutersFleet): string =>
  `${routers} ${routers === 1 ? "router" : `routers, ${sharing === "mesh" ? "mesh" : "nothing shared"}`}`;

/** Joins runs into rows; the metrics are those with the mesh. */
export function routersReport(
  params: Readonly<Record<string, number | string | boolean>>,
  measured: readonly MeasuredRouters[],
) {
  const apart = (routers: number): readonly Figures[] =>
    measured.find(({ fleet }) => fleet.routers === routers && fleet.sharing === "none")?.runs ?? [];
  const rows = measured.map(({ fleet, runs }): RoutersRow => {
    const others = apart(fleet.routers);
    const shares = (name: string, at: number): number => 1 - others[at]![name]! / runs[at]![name]!;
    const withShares = runs.map((run, at) => ({
      ...run,
      ...(fleet.sharing === "mesh"
        ? {
            mesh_share: shares("cpu_us_per_request", at),
            steady_mesh_share: shares("steady_cpu_us_per_request", at),
          }
        : {}),
    }));
    return { ...fleet, ...summarizeRuns(withShares) };
  });
  const figuresOf = (isShared: boolean): Figures =>
    Object.fromEntries(
      rows
        .filter(({ routers, sharing }) => (sharing === "mesh" || routers === 1) === isShared)
        .flatMap(({ routers, medians }) =>
          Object.entries(medians).map(([name, value]) => [`${name}_${routers}`, value] as const),
        ),
    );
  return reportOf("routers", {
    params,
    metrics: figuresOf(true),
    baselines: { nothing_shared: figuresOf(false) },
    rows,
  });
}

/** A line for each number of routers and sharing: medians, followed by the extremes of the runs. */
export function routersTable({ rows }: ReturnType<typeof routersReport>): string {
  const figure = (header: string, name: string) => ({
    header,
    value: ({ medians, spread }: RoutersRow) => withExtremes(name, medians[name], spread[name]),
  });
  return layOutTable(rows, [
    { header: "routers", value: ({ routers }) => routers },
    { header: "sharing", value: ({ sharing }) => sharing },
    figure("requests/s", "rps"),
    figure("CPU us/request", "cpu_us_per_request"),
    figure("mesh share", "mesh_share"),
    figure(`CPU us/request at ${steadyPerSecond}/s`, "steady_cpu_us_per_request"),
    figure("mesh share", "steady_mesh_share"),
    figure("added p50 (ms)", "added_p50_ms"),
    figure("p99 (ms)", "added_p99_ms"),
  ]);
}
