import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { chat, post } from "./client.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

/** Only to end a test that hangs; far beyond what a warm-up takes. */
const deadlineMs = 30_000;
const startWarm = async (warmUpMs: number, config = {}) => {
  const sims = await rig.sims(2);
  const router = await rig.router({ engines: sims.map(({ url }) => url), warmUpMs, config });
  return { sims, router };
};
const readiness = async ({ adminUrl }: RunningRouter): Promise<{ status: number; reasons: readonly string[] }> => {
  const answer = await fetch(`${adminUrl}/readyz`);
  return { status: answer.status, reasons: ((await answer.json()) as { reasons: readonly string[] }).reasons };
};
const untilReady = (router: RunningRouter) =>
  waitFor(async () => (await readiness(router)).status === 200, { what: "a ready router", deadlineMs });
/** Of what a router measures of its process and of its engines by the clock, which says nothing of requests. */
const unreported =
  /^espalier_(engine_|event_loop|heap_|open_connections|process_|scrape|health|build_|config_applied_timestamp)/;
/** Every metric else, once the index has been measured. */
const counted = async (router: RunningRouter): Promise<readonly string[]> => {
  let text = "";
  await waitFor(
    async () => {
      text = (await router.admin("GET", "/metrics")).text;
      return /^espalier_prefix_index_bytes [1-9]/m.test(text);
    },
    { what: "a measured index" },
  );
  return text.split("\n").filter((line) => /^espalier_/.test(line) && !unreported.test(line));
};

test("a router that warms up is alive, and ready once that is over", async () => {
  const { router } = await startWarm(3_000);
  expect(await readiness(router)).toEqual({ status: 503, reasons: ["the router is warming up"] });
  expect((await fetch(`${router.url}/livez`)).status).toBe(200);
  await untilReady(router);
});

test("clients that come before it is over are served", async () => {
  const { router } = await startWarm(3_000);
  expect((await readiness(router)).status).toBe(503);
  expect((await post(`${router.url}/v1/chat/completions`, chat())).status).toBe(200);
});

test("what it did is seen nowhere: no engine, metric, index, decision or log tells of it", async () => {
  const { router, sims } = await startWarm(1_500);
  const cold = await rig.router({ engines: sims.map(({ url }) => url) });
  await untilReady(router);
  for (const sim of sims)
    expect((await sim.state()).requests.filter(({ path }) => path.startsWith("/v1/c"))).toEqual([]);
  const metrics = await counted(router);
  expect(metrics.length).toBeGreaterThan(10);
  expect(metrics).toEqual(await counted(cold));
  expect((await router.admin("GET", "/admin/status")).json).toMatchObject({
    inFlight: 0,
    engines: 2,
    models: ["tiny"],
  });
  expect(router.lines.filter(({ level }) => level !== "info")).toEqual([]);
  expect(router.lines.map(({ message }) => message)).toEqual(cold.lines.map(({ message }) => message));
});

test("other routers of a mesh hear nothing of it", async () => {
  const mesh = { port: 0, "router-id": "a", secret: "0123456789abcdef0123456789abcdef" };
  const { router: first } = await startWarm(0, { mesh });
  const seeds = [first.router.meshAddress];
  const { router: second } = await startWarm(1_500, { mesh: { ...mesh, "router-id": "b", seeds } });
  await untilReady(second);
  const { json } = await first.admin("GET", "/admin/mesh");
  const { facts, load } = json as unknown as { facts: { blocks: number }; load: readonly { inFlight: number }[] };
  expect([facts.blocks, ...load.map(({ inFlight }) => inFlight)]).toEqual([0, 0]);
  expect((await first.admin("GET", "/admin/engines")).text).not.toContain("warm-up");
});

test("it ends when its time is up, however little of it is done", async () => {
  const { router } = await startWarm(1);
  await untilReady(router);
  const { status } = await post(`${router.url}/v1/chat/completions`, chat());
  expect(status).toBe(200);
});

test("without it a router is ready as soon as its engines are", async () => {
  const { router } = await startWarm(0);
  expect(await readiness(router)).toEqual({ status: 200, reasons: [] });
});

test("a stop breaks it off", async () => {
  const { router } = await startWarm(60_000);
  expect((await readiness(router)).status).toBe(503);
  await router.router.stop();
  await expect(fetch(`${router.adminUrl}/livez`)).rejects.toThrow();
});
