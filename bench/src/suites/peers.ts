import { systemClock, systemScheduler } from "@espalier/common";
import { bareContender, bareName, type Contender, ownContender, ownName, peerContender } from "../peers/contenders.ts";
import { type InstalledPeer, installPeer } from "../peers/install-peer.ts";
import { type DataPathOptions, measureDataPath, measureMemory } from "../peers/measure-data-path.ts";
import { measureTurns, type TurnShare } from "../peers/measure-turns.ts";
import { contenderNames, type PeersPlan, readPeersPlan } from "../peers/peers-plan.ts";
import { type NotHad, type PeersRun, peersReport, peersTable } from "../peers/peers-report.ts";
import { products } from "../peers/products.ts";
import { repeatWithin } from "../peers/repeat-within.ts";
import { type MeshProduct, ownMeshProduct, smgMeshProduct } from "../peers/turn-fleets.ts";
import { startEngine } from "../support/bench-engine-child.ts";
import { type CorePlan, pinProcess } from "../support/cpu-pinning.ts";
import type { Suite } from "../support/suite.ts";
import { reserveCore } from "./proxy-fleet.ts";

/** What a part of the suite may use. */
interface Machine {
  readonly cores: CorePlan | undefined;
  readonly deadlineMs: number;
}

const smgName = "smg";
/** Of the time; the rest is for the two-turn test. */
const dataPathShare = 0.65;
const help = `Usage: npm run bench -- peers [options]

The same loads through this router and others, each on the same single core, load generator and engines on the others:
${contenderNames.join(", ")}. What looks at caches does so by the bytes of prompts, and repeats the
short loads under round robin; the rest is round robin. Then the two-turn test, for those that have a mesh.

What is not ours is installed by this command: Python packages by pip (python3 with venv), nginx and haproxy from the
PATH or by apt-get, unpacked and not installed. What cannot be had is named and left out.
Beside installing it takes 12 minutes at most, or begins no further run; 3 with --quick.

  --only NAMES  with commas between
  --duration S  seconds of each closed loop (1.5); paced streams take 1.5 times and latencies twice as long
  --runs N      runs with fresh processes, of which the medians count (3)
  --prompts N   distinct prompts of 4 KB sent for the growth of memory (50000)
  --folder DIR  where products are installed, once (.cache/peers)
  --quick       one short run, 5000 prompts
  --json        one JSON object on standard output
`;

/** This router beside others, on the same core under the same loads. */
export const peersSuite: Suite = {
  name: "peers",
  summary: "this router beside sglang-router, SMG, vllm-router, nginx and HAProxy, which it installs",
  help,
  async run(args, note) {
    const plan = readPeersPlan(args);
    const { installed, notHad } = await installAll(plan, note);
    const cores = reserveCore();
    note(cores ? `pinned: routers on core ${cores.router.join(",")}` : "not pinned: no taskset, or only one core");
    const startMs = systemClock.nowMs();
    const runs = await measureAll(
      plan,
      installed,
      { cores, deadlineMs: startMs + plan.budgetMs * dataPathShare },
      note,
    );
    const turns = await measureAllTurns(plan, installed, { cores, deadlineMs: startMs + plan.budgetMs }, note);
    const report = peersReport({ ...runs, turns, notHad, plan, isPinned: cores !== undefined });
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
  { names, runs: count, sizes }: PeersPlan,
  installed: readonly InstalledPeer[],
  { cores: plan, deadlineMs }: Machine,
  note: (line: string) => void,
): Promise<Pick<PeersRun, "contenders" | "memory" | "runs">> {
  const ports = { clock: systemClock, scheduler: systemScheduler, plan };
  const contenders: readonly Contender[] = [
    ...(names.includes(ownName) ? [ownContender(ports)] : []),
    ...installed.map((peer) => peerContender(peer, ports)),
    ...(names.includes(bareName) ? [bareContender(ports)] : []),
  ];
  const engine = await startEngine();
  try {
    const { urls: engineUrls } = engine.listening;
    const options: DataPathOptions = { ...ports, contenders, engineUrls, sizes, note };
    const memory = await measureMemory(options);
    const runs = await repeatWithin({ count, deadlineMs, clock: systemClock }, (index) => {
      const noteRun = (line: string): void => note(`run ${index + 1} of ${count}: ${line}`);
      return measureDataPath({ ...options, note: noteRun }, index + 1);
    });
    return { contenders, memory, runs };
  } finally {
    await engine.stop();
  }
}

/** The routers of this test are not pinned: it asks where requests go, not what they cost. */
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
