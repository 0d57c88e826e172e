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
import { contenderNames, type PeersPlan, readPeersPlan } from "../peers/peers-plan.ts";
import { type NotHad, peersReport, peersTable } from "../peers/peers-report.ts";
import { products } from "../peers/products.ts";
import { repeatWithin } from "../peers/repeat-within.ts";
import { type MeshProduct, ownMeshProduct, smgMeshProduct } from "../peers/turn-fleets.ts";
import { type CorePlan, pinProcess, reserveCore } from "../support/cpu-pinning.ts";
import type { Suite } from "../support/suite.ts";

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
const help = `Usage: npm run bench -- peers [options]

The same loads through this router and others, each in a fresh process on the same single core that gets the same requests
in the same order, load generator and engines (C programs, compiled by cc) on the others:
${contenderNames.join(", ")}. What looks at caches does so by the bytes of prompts; the rest is round
robin. Then the two-turn test, for those that have a mesh.

What is not ours is installed by this command: Python packages by pip (python3 with venv), nginx and haproxy from the
PATH or by apt-get, unpacked and not installed. What cannot be had is named and left out.
Beside installing it takes 12 minutes at most, or begins no further run; 3 with --quick.

  --only NAMES  with commas between
  --node LIST   this router in these releases of Node besides, such as 24,26, which npm brings
  --part NAME   data-path, cold-start (only by name; half a minute for each product and run) or turns, without the others
  --priority    all of it before other programs of this machine; needs root
  --wrk         the closed loops of 4 and 48 KB once more by wrk, to check our own load generator by
  --round-robin  also what those that look at caches take under round robin
  --duration S  seconds of each closed loop (1); paced streams take 1.5 times and latencies twice as long
  --runs N      runs with fresh processes, of which the medians count (3)
  --minutes N   the most that it takes (12)
  --prompts N   distinct prompts of 4 KB that each gets first: the cold figures, and the growth of memory (36000)
  --folder DIR  where products are installed, once (.cache/peers)
  --quick       one short run, 5000 prompts
  --json        one JSON object on standard output
`;

/** This router and others, on the same core under the same loads. */
export const peersSuite: Suite = {
  name: "peers",
  summary: "this router beside sglang-router, SMG, vllm-router, nginx and HAProxy, which it installs",
  help,
  async run(args, note) {
    const plan = readPeersPlan(args);
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
    const report = peersReport({ ...measured, turns, notHad, plan, otherCores: cores?.others.length });
    return { report, table: () => peersTable(report) };
  },
};

async function installAll(
  { names, folder }: PeersPlan,
  note: (line: string) => void,
): Promise<{ installed: readonly InstalledPeer[]; notHad: readonly NotHad[] }> {
  const installed: InstalledPeer[] = [];
  const notHad: NotHad[] = [];
  for (const product of products.filter(({ name }) => names.includes(name))) {
    try {
      installed.push(await installPeer(product, folder, note));
    } catch (thrown) {
      const reason = thrown instanceof Error ? thrown.message : String(thrown);
      note(`${product.name} cannot be had and is left out: ${reason}`);
      notHad.push({ name: product.name, reason });
    }
  }
  return { installed, notHad };
}

async function measureAll(
  { names, runs: count, parts, sizes, isRoundRobinToo, isCheckedByWrk }: PeersPlan,
  { installed, releases }: { readonly installed: readonly InstalledPeer[]; readonly releases: readonly NodeRelease[] },
  { cores: plan, deadlineMs }: Machine,
  note: (line: string) => void,
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
    const runs = await repeatWithin({ count, deadlineMs, clock: systemClock }, (index) => {
      const noteRun = (line: string): void => note(`run ${index + 1} of ${count}: ${line}`);
      const options = { contenders, engine, sizes, isRoundRobinToo, isCheckedByWrk, note: noteRun };
      return parts.loads === "cold-start"
        ? measureColdStart(options, index + 1, referenceName)
        : measureDataPath(options, index + 1);
    });
    return { contenders, runs };
  } finally {
    await engine.stop();
  }
}

/** The routers of this test are not pinned, because it measures where requests go, not their cost. */
async function measureAllTurns(
  { names, runs: count, turns: sizes }: PeersPlan,
  installed: readonly InstalledPeer[],
  { cores, deadlineMs }: Machine,
  note: (line: string) => void,
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
  await repeatWithin({ count, deadlineMs, clock: systemClock }, async (index) => {
    for (const [product, isMesh] of fleets) {
      try {
        shares.push(...(await measureTurns(product, isMesh, { sizes, seed: index + 1, ports, note })));
      } catch (thrown) {
        note(`two turns at ${product.name} failed: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
      }
    }
  });
  return shares;
}
