import { waitFor } from "@espalier/testing";
import { afterEach, describe, expect, test } from "vitest";
import { startFaultProxy } from "../chaos/fault-proxy.ts";
import { cacheRouter, feedsOf, publishingSims, untilHeard } from "./cache-rig.ts";
import { ask, tokensOf } from "./cached-turns.ts";
import type { Json } from "./client.ts";
import { joinRouter, untilLinked } from "./mesh-rig.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

/** One way; a busy machine adds to it. */
const wayMs = 60;

describe("of an engine nearby and one behind a long wire", () => {
  async function start() {
    const [near, far] = await publishingSims(rig, 2, { speed: 1 });
    const port = Number(new URL(far!.url).port);
    const wire = await startFaultProxy({ targetPort: () => port, fault: () => ({ kind: "delay", delayMs: wayMs }) });
    rig.own(() => wire.close());
    const engines = [
      { id: "near", url: near!.url },
      { id: "far", url: `http://127.0.0.1:${wire.port}`, region: "us" },
    ];
    const router = await cacheRouter(rig, engines, { config: { policy: "predicted_latency" } });
    const networkMs = async (id: string): Promise<number> => {
      const engines = (await router.engines()) as unknown as readonly { id: string; network_ms: number | null }[];
      return engines.find((engine) => engine.id === id)?.network_ms ?? Number.NaN;
    };
    // The first answers of a busy machine come late; the fastest of some has little but the way in it.
    const isMeasured = async () => {
      const [nearMs, farMs] = [await networkMs("near"), await networkMs("far")];
      return nearMs < wayMs / 2 && farMs >= 2 * wayMs && farMs < 3 * wayMs;
    };
    await waitFor(isMeasured, { what: "the distance of both engines" });
    const drain = (isDraining: boolean) => router.admin("PATCH", "/admin/engines/near", { draining: isDraining });
    const sims = [
      { ...near!, id: "near" },
      { ...far!, id: "far" },
    ];
    return { router, sims, drain };
  }
  const completion = (prompt: readonly number[]) => ({ prompt, max_tokens: 1 });
  const sent = async (router: RunningRouter, prompt: readonly number[]) => {
    const { engine } = await ask(router, "/v1/completions", completion(prompt));
    await router.untilIdle();
    return engine;
  };

  test("the near one gets what no cache has, and the far one what its cache pays the trip for", async () => {
    const { router, sims, drain } = await start();
    const [long, short] = [tokensOf(7, 12_000), tokensOf(8, 160)];
    for (const seed of [1, 2, 3]) expect(await sent(router, tokensOf(seed, 400))).toBe("near");

    await drain(true);
    for (const prompt of [long, short]) expect(await sent(router, prompt)).toBe("far");
    await untilHeard(router, sims);
    await drain(false);
    expect(await sent(router, long)).toBe("far");
    expect(await sent(router, short)).toBe("near");

    const explained = await router.admin("POST", "/admin/explain", { model: "tiny", ...completion(tokensOf(9, 400)) });
    const candidates = explained.json.candidates as readonly { key: string; signals: Json; terms: Json }[];
    const farOne = candidates.find(({ key }) => key === "far")!;
    expect(farOne.signals.networkMs).toBeGreaterThanOrEqual(2 * wayMs);
    expect(Number(farOne.terms.network_ms)).toBeGreaterThan(wayMs);
    expect(candidates.find(({ key }) => key === "near")!.terms.network_ms).toBe(0);
    const page = await router.metrics();
    expect(page.sum("espalier_engine_network_round_trip_seconds", { engine: "far" })).toBeGreaterThanOrEqual(0.12);
  });
});

test("routers read the events of their own region's engines, and of another one's when it has no router left", async () => {
  const sims = await publishingSims(rig, 6);
  const engines = sims.map(({ url }, at) => ({ url, region: at % 2 === 0 ? "eu" : "us" }));
  const routers: RunningRouter[] = [];
  for (const [at, region] of ["eu", "us"].entries()) {
    const mesh = { "router-id": `router-${at}`, region };
    routers.push(await joinRouter(rig, routers[0], engines, { mesh }));
  }
  await untilLinked(routers);
  const owners = async (router: RunningRouter) => {
    const feeds = await feedsOf(router);
    return sims.map(({ id }) => feeds.find(({ target }) => target === id)?.owner);
  };
  const areOwners = (expected: readonly string[]) => async () => {
    const seen = await Promise.all(routers.map(owners));
    return seen.every((all) => JSON.stringify(all) === JSON.stringify(sims.map((_, at) => expected[at % 2])));
  };
  await waitFor(areOwners(["router-0", "router-1"]), { what: "readers of the engines' regions", deadlineMs: 20_000 });
  const { members } = (await routers[0]!.admin("GET", "/admin/mesh")).json as { members: readonly Json[] };
  expect(members).toMatchObject([{ router: "router-1", region: "us" }]);

  const gone = routers.pop()!;
  await gone.router.stop();
  await waitFor(areOwners(["router-0", "router-0"]), { what: "one reader of all", deadlineMs: 20_000 });
});
