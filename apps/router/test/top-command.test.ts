import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { describeFrame, followFleet, registerTop, type TopFrame } from "../src/commands/top.ts";
import { runCommand } from "./run-command.ts";
import { temporaryServer } from "./temporary.ts";

const noTotals = {
  ...{ requests: 0, answered: 0, refused: 0, failed: 0, cut: 0, cancelled: 0 },
  ...{ met: 0, missed: 0, streams: 0, tpotS: 0 },
  ...{ firstBytes: 0, firstByteS: 0, promptTokens: 0, cachedTokens: 0, completionTokens: 0 },
};

interface Counted extends Partial<typeof noTotals> {
  hits?: number;
  queries?: number;
}

const engine = (id: string, inFlight: number, { hits = 0, queries = 0 }: Counted) => ({
  ...{ id, state: "up", draining: false },
  targets: [
    {
      load: { in_flight: inFlight },
      signals: { running: 3, waiting: 1, kv_use: 0.25, prefix_queries: queries, prefix_hits: hits },
    },
  ],
});

/** A router whose counters a test sets; `gone` makes it fail. */
async function createRouter(name: string, peers: readonly string[] = [], engines = ["b", "a"]) {
  const counted: Counted = {};
  const state = { gone: false, lost: [] as readonly string[] };
  const admin = await temporaryServer(({ path, response }) => {
    if (state.gone) return response.destroy();
    const { hits: _, queries: __, ...totals } = counted;
    if (path === "/admin/status") {
      const adminUrls = peers.map((adminUrl) => ({ router: "other", adminUrl }));
      const status = {
        ready: true,
        draining: false,
        inFlight: 5,
        totals: { ...noTotals, ...totals },
        url: `http://${name}:8080`,
        mesh: { router: name, lost: state.lost.map((router) => ({ router, address: null, sinceMs: 0 })) },
      };
      return response.end(JSON.stringify({ ...status, peers: adminUrls }));
    }
    return response.end(JSON.stringify({ engines: engines.map((id) => engine(id, id.length, counted)) }));
  });
  return { admin, counted, state };
}

test("rates, shares and times are of what was counted between the frames", async () => {
  const time = createVirtualTime();
  const { admin, counted } = await createRouter("r1");
  Object.assign(counted, { requests: 1_000, firstBytes: 900, firstByteS: 90, promptTokens: 5_000, cachedTokens: 100 });
  counted.queries = 70;
  const fleet = followFleet({ admin }, time.clock);
  expect((await fleet.look()).routers).toMatchObject([{ router: "r1", requestsPerSecond: null, cachedShare: null }]);
  await time.advanceAsync(2_000);
  Object.assign(counted, { requests: 1_010, failed: 4, refused: 2, cut: 1, firstBytes: 904, firstByteS: 90.2 });
  Object.assign(counted, { promptTokens: 6_000, cachedTokens: 850, queries: 170, hits: 40 });
  Object.assign(counted, { met: 6, missed: 2, streams: 4, tpotS: 0.1 });
  const frame = await fleet.look();
  expect(frame.seconds).toBe(2);
  expect(frame.routers).toEqual([
    {
      ...{ router: "r1", state: "ready", inFlight: 5, requestsPerSecond: 5, cachedShare: 0.75 },
      ...{ refusedPerSecond: 1, failedPerSecond: 2, cutPerSecond: 0.5 },
      firstByteMs: expect.closeTo(50),
      ...{ tpotMs: expect.closeTo(25), goodputShare: 0.75 },
    },
  ]);
  expect(frame.engines).toEqual(
    ["a", "b"].map((id) => ({
      ...{ engine: id, state: "up", running: 3, waiting: 1, kvUse: 0.25, cachedShare: 0.4 },
      inFlight: { r1: 1 },
    })),
  );
});

test("counters that begin again, as after a restart, give no rate", async () => {
  const time = createVirtualTime();
  const { admin, counted } = await createRouter("r1");
  counted.requests = 1_000;
  const fleet = followFleet({ admin }, time.clock);
  await fleet.look();
  await time.advanceAsync(1_000);
  counted.requests = 3;
  expect((await fleet.look()).routers[0]!.requestsPerSecond).toBeNull();
});

// A router that was killed vanished from the table, or stood there by an address that nobody knows it by.
test("a router that the mesh lost stays as lost, by its name, whether it was followed or not", async () => {
  const second = await createRouter("r2");
  const first = await createRouter("r1", [second.admin]);
  const fleet = followFleet({ admin: first.admin });
  await fleet.look();
  second.state.gone = true;
  first.state.lost = ["r2", "r3"];
  expect((await fleet.look()).routers).toMatchObject([
    { router: "r1", state: "ready" },
    { router: "r2", state: "lost", inFlight: null },
    { router: "r3", state: "lost", inFlight: null },
  ]);
  Object.assign(second.state, { gone: false });
  first.state.lost = [];
  expect((await fleet.look()).routers).toMatchObject([{ router: "r1" }, { router: "r2", state: "ready" }]);
});

test("the other routers are followed, also when the first is gone, and it when it is back", async () => {
  const second = await createRouter("r2");
  const first = await createRouter("r1", [second.admin, "http://127.0.0.1:1"]);
  const fleet = followFleet({ admin: first.admin });
  expect((await fleet.look()).routers.map(({ router }) => router)).toEqual(["r1", "r2"]);
  expect((await fleet.look()).engines[0]!.inFlight).toEqual({ r1: 1, r2: 1 });
  first.state.gone = true;
  const frame = await fleet.look();
  expect(frame.routers).toMatchObject([{ router: "r1", state: "no answer", inFlight: null }, { router: "r2" }]);
  expect(frame.engines[0]).toMatchObject({ running: 3, inFlight: { r2: 1 } });
  second.state.gone = true;
  await expect(fleet.look()).rejects.toThrow(/./);
  Object.assign(first.state, { gone: false });
  expect((await fleet.look()).routers).toMatchObject([{ router: "r1", state: "ready" }, { state: "no answer" }]);
});

test("a router that the others know by another address counts once; beyond 32, routers are not followed", async () => {
  const peers: string[] = [];
  const first = await createRouter("r1", peers);
  const again = await createRouter("r1");
  peers.push(again.admin);
  const fleet = followFleet({ admin: first.admin });
  expect((await fleet.look()).routers).toHaveLength(1);
  for (let at = 0; at < 32; at++) peers.push((await createRouter(`p${at}`, [], [])).admin);
  expect((await fleet.look()).routers).toHaveLength(32);
  expect((await fleet.look()).engines).toHaveLength(2);
});

const row = { state: "up", running: 1, waiting: 0, kvUse: 0.5, cachedShare: null };
const frame: TopFrame = {
  seconds: 10.2,
  routers: [
    {
      ...{ router: "r1", state: "ready", inFlight: 7, requestsPerSecond: 2.55 },
      ...{ refusedPerSecond: 1.25, failedPerSecond: 0, cutPerSecond: 0.4 },
      cachedShare: 0.9,
      firstByteMs: 41.6,
      ...{ tpotMs: 21.4, goodputShare: null },
    },
  ],
  engines: Array.from({ length: 40 }, (_, at) => ({ ...row, engine: `engine-${at}`, inFlight: { r1: at } })),
};

test("a frame has routers, engines and whose requests are there; it fits the screen", () => {
  const text = describeFrame({ ...frame, engines: frame.engines.slice(0, 2) });
  expect(text).toContain(
    "router  state  in flight  req/s  refused/s  failed/s  cut/s  cached (%)  first byte (ms)  tpot (ms)  goodput (%)",
  );
  expect(text).toMatch(/^r1 +ready +7 +2\.5 +1\.\d +0\.0 +0\.4 +90\.0 +42 +21\.4 +-$/m);
  expect(text).toMatch(/^engine +state +running +waiting +kv use \(%\) +cached \(%\) +of r1$/m);
  expect(text).toMatch(/^engine-1 +up +1 +0 +50\.0 +- +1$/m);
  expect(text).toContain("of the last 10 s");
  const cut = describeFrame(frame, 24);
  expect(cut.split("\n").length).toBeLessThan(24);
  expect(cut).toContain("and 26 engines more");
});

test("--once prints one frame, also as JSON, and without a terminal there is no other", async () => {
  const { admin } = await createRouter("r1");
  const { stdout } = await runCommand(registerTop, "top", "--admin", admin);
  expect(stdout).toMatch(/^router +state .*\nr1 +ready/);
  expect(stdout).not.toContain("\u001b");
  const { stdout: json } = await runCommand(registerTop, "top", "--once", "--json", "--admin", admin);
  expect(JSON.parse(json)).toMatchObject({
    routers: [{ router: "r1", requestsPerSecond: 0 }],
    engines: [{ engine: "a" }, { engine: "b" }],
  });
});

test("--json asks for --once, and a router that does not answer is an error", async () => {
  expect(String((await runCommand(registerTop, "top", "--json")).error)).toContain("--json needs --once");
  const { error } = await runCommand(registerTop, "top", "--once", "--admin", "http://127.0.0.1:1");
  expect(String(error)).toContain("No router answers at http://127.0.0.1:1");
});
