import { systemClock, systemScheduler } from "@espalier/core";
import { startBenchEngine } from "../data-path/bench-engine.ts";
import {
  bareContender,
  bareName,
  type Contender,
  type NodeRelease,
  ownContender,
  ownName,
  peerContender,
} from "../data-path/contenders.ts";
import { measureColdStart } from "../data-path/measure-cold-start.ts";
import { type DataPathRun, measureDataPath } from "../data-path/measure-data-path.ts";
import { installReleases } from "../data-path/node-releases.ts";
import { hasWrk, wrkMissing } from "../data-path/wrk.ts";
import { type InstalledPeer, installPeer } from "../peers/install-peer.ts";
import { measureTurns, type TurnShare } from "../peers/measure-turns.ts";
import { products } from "../peers/products.ts";
import { type MeshProduct, ownMeshProduct, smgMeshProduct } from "../peers/turn-fleets.ts";
import { type CorePlan, pinProcess, reserveCore } from "../support/cpu-pinning.ts";
import { repeatRuns } from "../support/repeat-runs.ts";
import { defineSuite, type Note } from "../support/suite.ts";
import { contenderNames, type PeersPlan, peersParams, peersPlan } from "./peers-plan.ts";
import { type NotHad, peersReport, peersTable } from "./peers-report.ts";

/** What a part of the suite may use. */
interface Machine {
  readonly cores: CorePlan | undefined;
  readonly deadlineMs: number;
}

const smgName = "smg";
/** Cold starts are compared to its. */
const referenceName = "sglang-router";
/** Share of the time; the rest is for the two-turn test. */
const dataPathShare = 0.65;

/** This router and others, on the same core under the same loads. */
export const peersSuite = defineSuite({
  name: "peers",
  summary: "this router beside sglang-router, SMG, vllm-router, nginx and HAProxy, which it installs",
  about: `
The same loads through this router and others, each in a fresh process on the same single core that gets the same requests
in the same order, load generator and engines (C programs, compiled by cc) on the others:
${contenderNames.join(", ")}. Cache-aware products match prompts by bytes; the rest is round
robin. Then the two-turn test, for those that have a mesh.

This command installs third-party software: Python packages by pip (python3 with venv), nginx and haproxy from the
PATH or by apt-get, unpacked and not installed. Unavailable products are named and skipped.
Apart from installation, the benchmark takes 12 minutes at most; 3 with --quick.`,
  params: peersParams,
  async measure(values, note) {
    const plan = peersPlan(values);
    const { installed, notHad } = await installAll(plan, note);
    if (plan.isCheckedByWrk && !hasWrk()) throw new Error(wrkMissing);
    const releases = await installReleases(plan.nodeReleases);
    const cores = reserveCore(plan.isFirst);
    note(cores ? `pinned: routers on core ${cores.router.join(",")}` : "not pinned: no taskset, or only one core");
    const startMs = systemClock.nowMs();
    const dataPathEndMs = startMs + plan.budgetMs * (plan.parts.turns ? dataPathShare : 1);
    const measured = plan.parts.loads
      ? await measureAll(plan, { installed, releases }, { cores, deadlineMs: dataPathEndMs }, note)
      : { contenders: [], runs: [] };
    const turns = plan.parts.turns
      ? await measureAllTurns(plan, installed, { cores, deadlineMs: startMs + plan.budgetMs }, note)
      : [];
    return peersReport({ ...measured, turns, notHad, plan, otherCores: cores?.others.length });
  },
  table: peersTable,
});

async function installAll(
  { names, folder }: PeersPlan,
  note: Note,
): Promise<{ installed: readonly InstalledPeer[]; notHad: readonly NotHad[] }> {
  const installed: InstalledPeer[] = [];
  const notHad: NotHad[] = [];
  for (const product of products.filter(({ name }) => names.includes(name))) {
    try {
      installed.push(await installPeer(product, folder, note));
    } catch (thrown) {
      const reason = thrown instanceof Error ? thrown.message : String(thrown);
      note(`${product.name} unavailable, skipped: ${reason}`);
      notHad.push({ name: product.name, reason });
    }
  }
  return { installed, notHad };
}

async function measureAll(
  { names, runs, parts, sizes, isRoundRobinToo, isCheckedByWrk }: PeersPlan,
  { installed, releases }: { readonly installed: readonly InstalledPeer[]; readonly releases: readonly NodeRelease[] },
  { cores: plan, deadlineMs }: Machine,
  note: Note,
): Promise<{ readonly contenders: readonly Contender[]; readonly runs: readonly DataPathRun[] }> {
  const ports = { clock: systemClock, scheduler: systemScheduler, plan };
  const contenders: readonly Contender[] = [
    ...(names.includes(ownName) ? [ownContender(ports)] : []),
    ...releases.map((node) => ownContender(ports, node)),
    ...installed.map((peer) => peerContender(peer, ports)),
    ...(names.includes(bareName) ? [bareContender(ports)] : []),
  ];
  const engine = await startBenchEngine();
  try {
    const within = { clock: systemClock, deadlineMs };
    const done = await repeatRuns({ runs, note, within }, (seed, noteRun) => {
      const options = { contenders, engine, sizes, isRoundRobinToo, isCheckedByWrk, note: noteRun };
      return parts.loads === "cold-start"
        ? measureColdStart(options, seed, referenceName)
        : measureDataPath(options, seed);
    });
    return { contenders, runs: done };
  } finally {
    await engine.stop();
  }
}

/** The routers of this test are not pinned, because it measures where requests go, not their cost. */
async function measureAllTurns(
  { names, runs, turns: sizes }: PeersPlan,
  installed: readonly InstalledPeer[],
  { cores, deadlineMs }: Machine,
  note: Note,
): Promise<readonly TurnShare[]> {
  if (cores) pinProcess(process.pid, [...cores.router, ...cores.others]);
  const smg = installed.find(({ product }) => product.name === smgName);
  const meshProducts: readonly MeshProduct[] = [
    ...(names.includes(ownName) ? [ownMeshProduct(ownName)] : []),
    ...(smg ? [smgMeshProduct(smg)] : []),
  ];
  const fleets = meshProducts.flatMap((product) => [true, false].map((isMesh) => [product, isMesh] as const));
  const ports = { clock: systemClock, scheduler: systemScheduler };
  const shares: TurnShare[] = [];
  await repeatRuns({ runs, note, within: { clock: systemClock, deadlineMs } }, async (seed) => {
    for (const [product, isMesh] of fleets) {
      try {
        shares.push(...(await measureTurns(product, isMesh, { sizes, seed, ports, note })));
      } catch (thrown) {
        note(`two turns at ${product.name} failed: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
      }
    }
  });
  return shares;
}
