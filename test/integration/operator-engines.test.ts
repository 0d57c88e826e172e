import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { chat, errorOf, post } from "./client.ts";
import { joinRouter, meshRouters, untilLinked } from "./mesh-rig.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const idsAt = async (router: RunningRouter): Promise<string> =>
  (await router.engines())
    .map(({ id }) => id)
    .sort()
    .join();
const untilAll = (routers: readonly RunningRouter[], ids: readonly string[]) => {
  const expected = [...ids].sort().join();
  return waitFor(async () => (await Promise.all(routers.map(idsAt))).every((seen) => seen === expected), {
    what: `${expected} at all routers`,
  });
};
const pathOf = (id: string): string => `/admin/engines/${encodeURIComponent(id)}`;

test("an engine added at one router serves at all; one removed at another is gone at all, and for whoever joins", async () => {
  const [a, b, c] = await rig.sims(3);
  const routers = await meshRouters(rig, 2, [a!, b!]);
  const [one, two] = routers as [RunningRouter, RunningRouter];

  const added = await one.admin("POST", "/admin/engines", { url: c!.url, labels: { added: "yes" } });
  expect([added.status, added.json.id]).toEqual([201, c!.id]);
  await untilAll(routers, [a!.id, b!.id, c!.id]);
  const again = await two.admin("POST", "/admin/engines", { url: c!.url });
  expect([again.status, errorOf(again).code]).toEqual([409, "engine_exists"]);

  expect((await two.admin("DELETE", pathOf(a!.id))).status).toBe(204);
  expect((await one.admin("DELETE", pathOf(b!.id))).status).toBe(204);
  await untilAll(routers, [c!.id]);
  await waitFor(async () => (await two.engines()).every(({ state, models }) => state === "up" && models), {
    what: "the added engine to be up at the other router",
  });
  const answer = await post(`${two.url}/v1/chat/completions`, chat());
  expect([answer.status, answer.headers["x-espalier-engine"]]).toEqual([200, c!.id]);

  const third = await joinRouter(rig, one, [a!, b!], { usable: 0, mesh: { "router-id": "router-2" } });
  await untilLinked([one, two, third]);
  await untilAll([third], [c!.id]);

  expect((await third.admin("POST", "/admin/engines", { url: a!.url })).status).toBe(201);
  await untilAll([one, two, third], [a!.id, c!.id]);
});

test("a router by itself takes engines too, and says what it refuses", async () => {
  const [sim] = await rig.sims(1);
  const router = await rig.router();
  const refused = await router.admin("POST", "/admin/engines", { url: "ftp://a" });
  expect([refused.status, errorOf(refused).code]).toEqual([400, "invalid_value"]);
  expect((await router.admin("POST", "/admin/engines", { url: sim!.url })).status).toBe(201);
  await waitFor(async () => (await post(`${router.url}/v1/chat/completions`, chat())).status === 200, {
    what: "an answer of the added engine",
  });
  expect((await router.admin("GET", pathOf(sim!.id))).json).toMatchObject({ id: sim!.id, state: "up" });
  expect((await router.admin("DELETE", pathOf(sim!.id))).status).toBe(204);
  expect((await router.admin("DELETE", pathOf(sim!.id))).status).toBe(404);
  expect((await post(`${router.url}/v1/chat/completions`, chat())).status).toBe(503);
});
