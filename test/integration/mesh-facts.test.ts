import { freePort, waitFor } from "@espalier/testing";
import { afterEach, describe, expect, test } from "vitest";
import { feedsOf, publishingSims, restartEngine, untilFeed } from "./cache-rig.ts";
import { ask, tokensOf } from "./cached-turns.ts";
import { post } from "./client.ts";
import { joinRouter, meshOf, meshRouters, targetOf, untilFolded, untilRead } from "./mesh-rig.ts";
import { createRig, type RunningRouter, type Sim } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

/** Sends a prompt past the routers: only its events tell of it. */
async function fill(sim: Sim, prompt: readonly number[]): Promise<void> {
  const answer = await post(`${sim.url}/v1/completions`, { model: "tiny", prompt, max_tokens: 1 });
  expect(answer.status).toBe(200);
}

const complete = (router: RunningRouter, prompt: readonly number[]) =>
  ask(router, "/v1/completions", { prompt, max_tokens: 1 });

const onPorts = (port: number, kvPort: number): Promise<readonly Sim[]> =>
  publishingSims(rig, 1, { port, kvEvents: { dialect: "vllm-0.32", port: kvPort } });

/** An engine, and how to start another process in its place. Its events and their history take two ports in a row. */
async function replaceableSim(attempts = 10): Promise<{ sim: Sim; startAgain: () => Promise<readonly Sim[]> }> {
  const [port, kvPort] = [await freePort(), await freePort()];
  try {
    const [sim] = await onPorts(port, kvPort);
    return { sim: sim!, startAgain: () => onPorts(port, kvPort) };
  } catch (error) {
    if (attempts === 0) throw error;
    return replaceableSim(attempts - 1);
  }
}

/** What each router has to do with an engine's events. */
async function rolesOf(routers: readonly RunningRouter[], sim: Sim): Promise<readonly string[]> {
  const feeds = await Promise.all(routers.map(feedsOf));
  return feeds.map((list) => String(list.find(({ target }) => target.startsWith(sim.id))?.role));
}

/** The first router that has this to do with an engine's events, as soon as there is one. */
const untilRole = (routers: readonly RunningRouter[], sim: Sim, role: string): Promise<RunningRouter> =>
  waitFor(async () => routers[(await rolesOf(routers, sim)).indexOf(role)], { what: `a router whose role is ${role}` });

describe("three routers", () => {
  async function three(engines: number) {
    const sims = await publishingSims(rig, engines);
    const routers = await meshRouters(rig, 3, sims);
    await untilRead(routers, engines);
    return { sims, routers };
  }

  test("facts read by one router are seen by the others, exactly", async () => {
    const { sims, routers } = await three(2);
    for (const [at, sim] of sims.entries()) {
      for (let prompt = 0; prompt < 4; prompt++) await fill(sim, tokensOf(10 * at + prompt, 200));
    }
    await untilFolded(routers, sims);
    const views = await Promise.all(routers.map(meshOf));
    expect(new Set(views.map(({ facts }) => facts.digest)).size).toBe(1);
    for (const { facts, feeds, targets } of views) {
      expect(facts).toMatchObject({ blocks: 2 * 4 * 12, settled: 2 });
      expect(feeds.unowned).toBe(0);
      expect(targets.map(({ quality }) => quality)).toEqual(["complete", "complete"]);
    }
    for (const router of routers) {
      for (const [at, sim] of sims.entries()) {
        const turn = await complete(router, tokensOf(10 * at + 1, 200));
        expect(turn).toMatchObject({ engine: sim.id, predicted: 192, cached: 192 });
      }
    }
  });

  test("each engine's events are read by an owner and a backup, and each router tells who it is", async () => {
    const { sims, routers } = await three(4);
    const hasItsReaders = async (sim: Sim): Promise<boolean> => {
      const roles = await rolesOf(routers, sim);
      if ([...roles].sort().join(" ") !== "backup none owner") return false;
      const { router: name } = await meshOf(routers[roles.indexOf("owner")]!);
      const feeds = (await Promise.all(routers.map(feedsOf))).flat();
      return feeds.filter(({ target }) => target.startsWith(sim.id)).every(({ owner }) => owner === name);
    };
    const areRead = async (): Promise<boolean> => {
      const views = await Promise.all(routers.map(meshOf));
      const [owned, backup] = (["owned", "backup"] as const).map((what) =>
        views.reduce((sum, { feeds }) => sum + feeds[what], 0),
      );
      return owned === 4 && backup === 4 && (await Promise.all(sims.map(hasItsReaders))).every(Boolean);
    };
    await waitFor(areRead, { what: "an owner and a backup of each, by the same names everywhere" });
  });

  test("an engine's restart voids its facts at routers that do not read it", async () => {
    const { sims, routers } = await three(1);
    const sim = sims[0]!;
    const prompt = tokensOf(1, 200);
    await fill(sim, prompt);
    await untilFolded(routers, sims);
    const onlooker = await untilRole(routers, sim, "none");
    expect(await complete(onlooker, prompt)).toMatchObject({ predicted: 192, cached: 192 });
    const { epoch } = (await targetOf(onlooker, sim))!;
    await restartEngine(sim);
    const other = tokensOf(2, 100);
    await fill(sim, other);
    await waitFor(
      async () => {
        const target = await targetOf(onlooker, sim);
        return target?.epoch !== epoch && target?.blocks === 6 && target.quality === "complete";
      },
      { what: "the new epoch" },
    );
    expect(await complete(onlooker, other)).toMatchObject({ predicted: 96, cached: 96 });
    expect(await complete(onlooker, prompt)).toMatchObject({ predicted: 0, cached: 0 });
  });

  test("a router that leaves hands its feeds over, and nothing is lost", async () => {
    const { sims, routers } = await three(2);
    for (const [at, sim] of sims.entries()) await fill(sim, tokensOf(at, 200));
    await untilFolded(routers, sims);
    const leaving = await untilRole(routers, sims[0]!, "owner");
    const others = routers.filter((router) => router !== leaving);
    await leaving.router.stop();
    for (const [at, sim] of sims.entries()) await fill(sim, tokensOf(10 + at, 200));
    await untilFolded(others, sims);
    await untilRead(others, 2);
    for (const router of others) {
      for (const [at, sim] of sims.entries()) {
        for (const seed of [at, 10 + at]) {
          const turn = await complete(router, tokensOf(seed, 200));
          expect(turn).toMatchObject({ engine: sim.id, predicted: 192, cached: 192 });
        }
      }
    }
  });

  test("what engines evict is evicted everywhere", async () => {
    const sims = await publishingSims(rig, 1, { parameters: { blockCount: 40 } });
    const routers = await meshRouters(rig, 3, sims);
    await untilRead(routers, 1);
    for (let seed = 0; seed < 12; seed++) await fill(sims[0]!, tokensOf(seed, 200));
    await untilFolded(routers, sims);
    const views = await Promise.all(routers.map(meshOf));
    expect(new Set(views.map(({ facts }) => facts.digest)).size).toBe(1);
    expect(views[0]!.facts.blocks).toBeLessThanOrEqual(40);
    for (const [at, router] of routers.entries()) {
      const turn = await complete(router, tokensOf(at, 200));
      expect(turn.predicted).toBe(turn.cached);
      await untilFolded(routers, sims);
    }
  });
});

/**
 * Five of five prompts went to the empty engine with 576 tokens predicted and 0 cached: its feed had changed readers
 * while it was down, the new reader had no number to miss, and an empty history voided nothing before the first event.
 */
test("an engine that was killed and started again has no credit before its first event, though its reader changed", async () => {
  const { sim, startAgain } = await replaceableSim();
  const routers = await meshRouters(rig, 3, [sim]);
  await untilRead(routers, 1);
  const prompts = Array.from({ length: 5 }, (_, seed) => tokensOf(seed, 600));
  for (const prompt of prompts) await fill(sim, prompt);
  await untilFolded(routers, [sim]);
  const leaving = await untilRole(routers, sim, "owner");
  const others = routers.filter((router) => router !== leaving);
  await sim.stop();
  await leaving.router.stop();
  await untilRole(others, sim, "owner");
  const [again] = await startAgain();
  const owner = await untilRole(others, again!, "owner");
  await untilFeed(owner, again!, "live nothing-published", 20_000);
  for (const router of others) {
    await waitFor(async () => (await targetOf(router, again!))?.quality === "complete", {
      what: "a feed that is read",
    });
    await waitFor(async () => (await router.engines())[0]?.targets[0]?.usable, { what: "a usable engine" });
  }
  const answers = [];
  for (const [at, prompt] of prompts.entries()) answers.push(await complete(others[at % 2]!, prompt));
  expect(answers.map(({ predicted, cached }) => [predicted, cached])).toEqual(prompts.map(() => [0, 0]));
  await untilFolded(others, [again!]);
  for (const router of others)
    expect(await complete(router, prompts[0]!)).toMatchObject({ predicted: 592, cached: 592 });
});

test("a router that joins late knows what was told before", async () => {
  const sims = await publishingSims(rig, 2);
  const [first] = await meshRouters(rig, 1, sims);
  await untilRead([first!], 2);
  for (const [at, sim] of sims.entries()) await fill(sim, tokensOf(at, 400));
  await untilFolded([first!], sims);
  const late = await joinRouter(rig, first!, sims);
  await untilFolded([first!, late], sims);
  for (const [at, sim] of sims.entries()) {
    expect(await complete(late, tokensOf(at, 400))).toMatchObject({ engine: sim.id, predicted: 384, cached: 384 });
  }
});

test("with events: direct, every router reads the engines itself", async () => {
  const sims = await publishingSims(rig, 1);
  const routers = await meshRouters(rig, 2, sims, { mesh: { events: "direct" } });
  await waitFor(async () => (await Promise.all(routers.map(feedsOf))).every(([feed]) => feed?.state === "live"), {
    what: "live feeds",
  });
  expect(await rolesOf(routers, sims[0]!)).toEqual(["null", "null"]);
  const prompt = tokensOf(1, 200);
  await fill(sims[0]!, prompt);
  for (const router of routers) {
    await waitFor(async () => (await feedsOf(router))[0]?.blocks.gpu === 12, { what: "facts" });
    expect(await complete(router, prompt)).toMatchObject({ predicted: 192, cached: 192 });
  }
  expect((await meshOf(routers[0]!)).facts.blocks).toBe(0);
});
