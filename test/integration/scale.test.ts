import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { certificateFiles, makeAuthority } from "./authorities.ts";
import { chat, type Json, openPost, post } from "./client.ts";
import { meshRouters } from "./mesh-rig.ts";
import { createRig, type RunningRouter } from "./rig.ts";
import { connectScaler } from "./scaler-client.ts";

const rig = createRig();
afterEach(() => rig.close());

interface Demand {
  readonly model: string;
  readonly desired: { readonly both: number };
  readonly engines: number;
  readonly requestsPerS: number;
  readonly costMs: number;
  readonly waiting: number;
}

const demandOf = async (router: RunningRouter): Promise<Demand | undefined> => {
  const { models } = (await router.admin("GET", "/admin/scale")).json as unknown as { readonly models: Demand[] };
  return models.find(({ model }) => model === "tiny");
};

const scalerOf = (router: RunningRouter) => {
  const scaler = connectScaler(router.router.scalerAddress!);
  rig.own(() => scaler.close());
  return scaler;
};

const zeroPool: Json = { pools: [{ models: ["tiny"], "scale-from-zero": { hold: "60s" } }] };

test("from zero to one and back: a request that waits asks KEDA for an engine, and an idle model gives it up", async () => {
  const router = await rig.router({ config: { ...zeroPool, scale: { port: 0, idle: "1s" } } });
  const scaler = scalerOf(router);
  const states = scaler.watch({ model: "tiny" });
  expect(await scaler.engines({ model: "tiny" })).toBe(0);
  const waiting = openPost(`${router.url}/v1/chat/completions`, chat());
  await waitFor(async () => (await scaler.engines({ model: "tiny" })) === 1, { what: "an engine to be desired" });
  expect(await demandOf(router)).toMatchObject({ waiting: 1, engines: 0, desired: { both: 1 } });
  await waitFor(() => states.includes(true), { what: "the stream to tell" });

  const [engine] = await rig.sims(1);
  await router.admin("POST", "/admin/engines", { url: engine!.url });
  expect((await waiting.head).statusCode).toBe(200);
  await waiting.body;
  await waitFor(async () => (await demandOf(router))?.engines === 1, { what: "the engine to count" });
  await waitFor(() => states.at(-1) === false, { what: "the model to rest" });
  expect(await scaler.engines({ model: "tiny" })).toBe(0);
  expect((await router.metrics()).sum("espalier_scale_desired_engines")).toBe(0);
});

test("routers of a mesh measure together, and each tells what all of them need", async () => {
  const sims = await rig.sims(2);
  const routers = await meshRouters(rig, 2, sims, { config: { scale: { port: 0 } } });
  for (let each = 0; each < 40; each++) await post(`${routers[each % 2]!.url}/v1/chat/completions`, chat());
  await waitFor(
    async () => {
      const rates = await Promise.all(routers.map(async (router) => (await demandOf(router))?.requestsPerS ?? 0));
      return rates.every((rate) => rate > 3) && Math.abs(rates[0]! - rates[1]!) < 0.5;
    },
    { what: "both routers to know the load of both" },
  );
  const [one, other] = await Promise.all(routers.map((router) => scalerOf(router).engines({ model: "tiny" })));
  expect(one).toBe(other);
  expect(one).toBeGreaterThanOrEqual(1);
  expect((await demandOf(routers[0]!))!.costMs).toBeGreaterThan(0);
});

test("the scaler over TLS, and metadata that name no model", async () => {
  const authority = makeAuthority(rig);
  const { tls } = certificateFiles(rig, authority.issue());
  const router = await rig.router({ config: { scale: { port: 0, tls } } });
  const scaler = connectScaler(router.router.scalerAddress!, authority.ca);
  rig.own(() => scaler.close());
  expect(await scaler.engines({ model: "tiny" })).toBe(0);
  await expect(scaler.engines({})).rejects.toThrow("Missing `model`");
  await expect(scaler.engines({ model: "tiny", role: "cook" })).rejects.toThrow("both, prefill, decode");
});
