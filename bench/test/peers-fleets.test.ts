import { systemClock, systemScheduler } from "@espalier/core";
import { createVirtualTime } from "@espalier/testing";
import { startLocalEngines } from "espalier-router";
import { beforeEach, expect, onTestFinished, test, vi } from "vitest";
import { ownContender, peerContender } from "../src/data-path/contenders.ts";
import { measureTurns } from "../src/peers/measure-turns.ts";
import { products } from "../src/peers/products.ts";
import { type StartPeerOptions, startPeer } from "../src/peers/start-peer.ts";
import { type MeshProduct, smgMeshProduct } from "../src/peers/turn-fleets.ts";
import { type Stoppable, startAnswering } from "./rig.ts";

// What is started, and how, is looked at; nothing is.
vi.mock(import("espalier-router"), async (original) => ({ ...(await original()), startLocalEngines: vi.fn() }));
vi.mock(import("../src/peers/start-peer.ts"), () => ({ startPeer: vi.fn() }));

const product = products.find(({ name }) => name === "smg")!;
const smg = { product, program: "/bin/smg", version: "1.13.0" };
const keep = (part: Stoppable): void => onTestFinished(() => void part.stop());
const engineUrls = ["http://127.0.0.1:81", "http://127.0.0.1:82"];
const stopped: string[] = [];
let started: StartPeerOptions[] = [];
let url = "";

beforeEach(async () => {
  stopped.length = 0;
  started = [];
  vi.mocked(startLocalEngines).mockResolvedValue({
    listening: { engines: engineUrls.map((each) => ({ id: each, url: each })) },
    stop: async () => void stopped.push("engines"),
  } as unknown as Awaited<ReturnType<typeof startLocalEngines>>);
  vi.mocked(startPeer).mockImplementation(async (_peer, options) => {
    started.push(options);
    const name = `gateway ${started.length}`;
    return { url, pid: 77, stop: async () => void stopped.push(name) };
  });
});

async function serveWorkers(ready: number): Promise<void> {
  const workers = engineUrls.map((_, at) => ({ status: at < ready ? "ready" : "pending" }));
  url = await startAnswering((_, response) => response.end(JSON.stringify({ workers })), keep);
}

const start = { port: 1, metricsPort: 2, engineUrls, policy: "cache_aware", folder: "/own" };
const argumentsOf = (options: StartPeerOptions): readonly string[] => options.command!(start).arguments;
const after = (args: readonly string[], flag: string): string | undefined => args[args.indexOf(flag) + 1];
const sizes = { routers: 2, engines: 2, speed: 1 };

test("gateways of SMG are told of each other, and are given time to link", async () => {
  await serveWorkers(2);
  const { clock } = createVirtualTime();
  const waits: number[] = [];
  const scheduler = {
    ...systemScheduler,
    after: (delayMs: number, run: () => void) => {
      waits.push(delayMs);
      return systemScheduler.after(0, run);
    },
  };
  const fleet = await smgMeshProduct(smg).startFleet({ ...sizes, isMesh: true }, { clock, scheduler });
  expect(fleet.urls).toEqual([url, url]);
  const [one, other] = started.map(argumentsOf);
  expect(after(one!, "--mesh-peer-urls")).toBe(`127.0.0.1:${after(other!, "--mesh-port")}`);
  expect(after(other!, "--mesh-peer-urls")).toBe(`127.0.0.1:${after(one!, "--mesh-port")}`);
  expect(after(one!, "--mesh-server-name")).not.toBe(after(other!, "--mesh-server-name"));
  expect(waits).toContain(5_000);
  await fleet.stop();
  expect(stopped.sort()).toEqual(["engines", "gateway 1", "gateway 2"]);
});

test("without the mesh no flag of it is given", async () => {
  await serveWorkers(2);
  const ports = { clock: systemClock, scheduler: systemScheduler };
  await smgMeshProduct(smg).startFleet({ ...sizes, isMesh: false }, ports);
  for (const options of started) {
    expect(argumentsOf(options).some((argument) => argument.includes("mesh"))).toBe(false);
    expect(options).toMatchObject({ engineUrls, policy: "cache_aware", plan: undefined });
  }
});

test("a gateway that never has all its workers ends the fleet, with all that was started", async () => {
  await serveWorkers(1);
  const { clock } = createVirtualTime();
  let nowMs = 0;
  const ports = { clock: { ...clock, nowMs: () => (nowMs += 5_000) }, scheduler: systemScheduler };
  const fleet = smgMeshProduct(smg).startFleet({ ...sizes, isMesh: false }, ports);
  await expect(fleet).rejects.toThrow("1 of 2 workers are ready");
  expect(stopped.sort()).toEqual(["engines", "gateway 1", "gateway 2"]);
});

test("a fleet that does not answer fails when its time is over, and is stopped", async () => {
  const silent = await startAnswering(() => {}, keep);
  let hasStopped = false;
  const deaf: MeshProduct = {
    name: "deaf",
    startFleet: async () => ({
      urls: [silent],
      stop: async () => {
        hasStopped = true;
      },
    }),
  };
  // The end of the time comes at once.
  const scheduler = {
    ...systemScheduler,
    after: (delayMs: number, run: () => void) => systemScheduler.after(delayMs > 20_000 ? 300 : delayMs, run),
  };
  const turns = {
    ...sizes,
    conversations: 2,
    warmUpConversations: 2,
    ratePerSecond: 200,
    waitsMs: [10],
    chanceWaitMs: 10,
  };
  const ports = { clock: systemClock, scheduler };
  const measured = measureTurns(deaf, true, { sizes: turns, seed: 1, ports, note: () => {} });
  await expect(measured).rejects.toThrow(/a turn at .* failed/);
  expect(hasStopped).toBe(true);
});

test("a peer is a contender on its core under its policy, ours looks at caches and is measured under round robin too", async () => {
  const plan = { router: [1], others: [0] };
  const ports = { clock: systemClock, scheduler: systemScheduler, plan };
  url = "http://127.0.0.1:9";
  const contender = peerContender(smg, ports);
  expect(contender).toMatchObject({ name: "smg", version: "1.13.0", policy: "cache_aware" });
  const { system, stop } = await contender.start(engineUrls, "round_robin");
  expect(system).toEqual({ name: "smg", urls: [url], pid: 77 });
  expect(started).toEqual([{ engineUrls, policy: "round_robin", plan }]);
  await stop();
  expect(stopped).toEqual(["gateway 1"]);
  expect(ownContender(ports)).toMatchObject({ name: "espalier", policy: "cache_aware" });
});
