import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterEach, expect, test } from "vitest";
import { tombstoneMs } from "../../src/replica/tombstones.ts";
import { chainOf, ScriptedEngine } from "./scripted-engine.ts";
import { TierCluster, type TierRouter } from "./tier-rig.ts";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

const atATime = 200;
const rounds = 16;
/** Rounds of which the smallest heap is taken, so that neither code that is still being compiled nor a late collection counts. */
const window = 4;
let routers: TierRouter[] = [];

afterEach(async () => {
  for (const { tier } of routers) await tier.stop();
});

/** Engines that come, are read by both routers, die, and leave their fleets. */
async function comeAndGo(cluster: TierCluster, from: number): Promise<void> {
  const engines = Array.from(
    { length: atATime },
    (_, at) => new ScriptedEngine(`engine-${from + at}`, cluster.time.scheduler),
  );
  const feeds = routers.flatMap((router) => engines.map((engine) => router.read(engine)));
  for (const [at, engine] of engines.entries()) engine.store(chainOf(at, 2));
  cluster.until(() =>
    routers.every((router) => engines.every(({ key }, at) => router.held(key, chainOf(at, 2)) === 2)),
  );
  for (const engine of engines) engine.end();
  cluster.time.advance(2_500);
  for (const feed of feeds) await feed.stop();
  cluster.time.advance(tombstoneMs + 11_000);
}

// Symptom: a router kept 2,269 B of every engine that it had ever had, and said for ever of the first 256 that had died that it could
// not reach them, so of no later one. Mechanism: how far journals reach, the epoch told last and which sockets are out of reach are
// kept by target, and nobody said there that a target was forgotten. After: of 3,000 engines nothing. The heap's first 1,600 engines
// do not count: it grows by 1 KB for each of them at first, which is machine code, and by nothing later.
test("a router keeps nothing of engines that came, died and left", async () => {
  const cluster = new TierCluster(rounds * atATime);
  routers = [cluster.add("a"), cluster.add("b")];
  for (const { tier } of routers) await tier.start();
  cluster.time.advance(2_000);
  const used: number[] = [];
  for (let from = 0; from < rounds * atATime; from += atATime) {
    await comeAndGo(cluster, from);
    collectGarbage();
    used.push(process.memoryUsage().heapUsed);
    for (const { tier } of routers) {
      expect(tier.replica.describe().targets).toEqual([]);
      expect(tier.backend.members()[0]!.unreachable).toEqual([]);
    }
  }
  const warm = Math.min(...used.slice(rounds / 2 - window, rounds / 2));
  const last = Math.min(...used.slice(-window));
  expect((last - warm) / ((rounds / 2) * atATime * routers.length)).toBeLessThan(300);
}, 120_000);
