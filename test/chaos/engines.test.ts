import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { waitFor } from "@espalier/testing";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createRig, type Sim } from "../integration/rig.ts";
import { tellChaos } from "./chaos-report.ts";
import { type Fault, type FaultProxy, startFaultProxy } from "./fault-proxy.ts";
import { type RouterProcess, startRouter } from "./router-process.ts";
import { startTraffic, type Traffic } from "./traffic.ts";

const rig = createRig();
afterAll(() => rig.close());
const folder = mkdtempSync(join(tmpdir(), "espalier-chaos-"));
const file = join(folder, "router.yaml");
rig.own(() => rmSync(folder, { recursive: true, force: true }));

const rest = `policy: round_robin
health: {interval: 500ms, timeout: 5s}
timeouts: {connect: 500ms, first-byte: 3s, idle: 3s}
breaker: {open: 500ms, max-open: 500ms}
`;

let sims: readonly Sim[];
let router: RouterProcess;
let wire: FaultProxy;
let wireFault: Fault | undefined;

/** Three engines at hand, and a fourth behind a wire that can fail. */
beforeAll(async () => {
  sims = await rig.sims(4);
  const port = Number(new URL(sims[3]!.url).port);
  wire = await startFaultProxy({ targetPort: () => port, fault: () => wireFault });
  rig.own(() => wire.close());
  const urls = [...sims.slice(0, 3).map(({ url }) => url), `http://127.0.0.1:${wire.port}`];
  writeFileSync(file, `${rest}engines: [${urls.map((url) => JSON.stringify(url)).join(", ")}]\n`);
  router = await startRouter(rig, "router-1", ["--config", file, "--log-level", "error"]);
  await untilUsable(4);
});

const usable = async (): Promise<number> => {
  const { engines } = await router.ask<{ engines: readonly { targets: readonly { usable: boolean }[] }[] }>(
    "/admin/engines",
  );
  return engines.filter(({ targets }) => targets[0]?.usable).length;
};

const untilUsable = (count: number): Promise<unknown> =>
  waitFor(async () => (await usable()) === count, { what: `${count} usable engines`, deadlineMs: 30_000 });

async function more(traffic: Traffic, count: number): Promise<void> {
  const wanted = traffic.completed + count;
  await waitFor(() => traffic.completed >= wanted, { what: `${count} more answers`, deadlineMs: 30_000 });
}

/** Traffic before, during and after. */
async function endure(begin: () => Promise<void>, isAllowed?: (failure: string) => boolean): Promise<Traffic> {
  const traffic = startTraffic({ routers: () => [router], clients: 4, everyMs: 2, ...(isAllowed && { isAllowed }) });
  await more(traffic, 20);
  await begin();
  await more(traffic, 60);
  await heal();
  await more(traffic, 20);
  await traffic.stop();
  await untilUsable(4);
  return traffic;
}

async function heal(): Promise<void> {
  wireFault = undefined;
  wire.faultsChanged();
  for (const sim of sims) await sim.clearFaults();
}

async function injure(fault: Readonly<Record<string, unknown>>): Promise<void> {
  tellChaos({ fault: `engine: ${String(fault.kind)}` });
  await sims[0]!.fault(fault);
}

async function breakWire(fault: Fault): Promise<void> {
  tellChaos({ fault: `wire to an engine: ${fault.kind}` });
  wireFault = fault;
  wire.faultsChanged();
}

test.each([
  { kind: "refuse" },
  { kind: "reset-before-headers" },
  { kind: "reset-mid-prefill" },
  { kind: "garbage", count: 3 },
  { kind: "garbage-body", status: 503, count: 3 },
  { kind: "status", status: 503, count: 3 },
  { kind: "status", status: 429, count: 3 },
  { kind: "unhealthy" },
  { kind: "metrics-lie" },
  { kind: "slow", delayMs: 5 },
  // Another engine goes on with what had begun.
  { kind: "reset-mid-stream", afterTokens: 2 },
  { kind: "cut-mid-stream", afterTokens: 2 },
])("one of four engines: $kind, and no request fails", async (fault) => {
  const traffic = await endure(() => injure(fault));
  expect(traffic.failures).toEqual([]);
});

test.each([{ kind: "hang-mid-stream", afterTokens: 2, count: 4 }])(
  "one of four engines: $kind; what had begun ends with an error frame, and nothing else fails",
  async (fault) => {
    const hasFrame = (failure: string): boolean => /cut after .*data: \{"error":/s.test(failure);
    const traffic = await endure(() => injure(fault), hasFrame);
    expect(traffic.failures).toEqual([]);
    expect(traffic.allowed.length).toBeGreaterThan(0);
  },
);

test("one of four engines: 500 with a large body of garbage; that answer is passed on, and nothing else fails", async () => {
  const isFault = (failure: string): boolean => failure.includes("status 500");
  const traffic = await endure(() => injure({ kind: "garbage-body", status: 500, count: 3 }), isFault);
  expect([traffic.failures, traffic.allowed.length]).toEqual([[], 3]);
});

test("one of four engines: events of 32 MiB without an end; they pass without being kept, and nothing else fails", async () => {
  const heldBytes = async (): Promise<number> => (await router.metrics()).sum("nodejs_external_memory_bytes");
  const before = await heldBytes();
  const { faulted = 0 } = (await sims[0]!.state()).totals;
  let most = 0;
  const isFault = (failure: string): boolean => failure.startsWith("cut after");
  const traffic = await endure(async () => {
    await injure({ kind: "huge-body", count: 3 });
    const isOver = async (): Promise<boolean> => {
      most = Math.max(most, await heldBytes());
      return (await sims[0]!.state()).totals.faulted === faulted + 3;
    };
    await waitFor(isOver, { what: "three huge answers", deadlineMs: 20_000 });
  }, isFault);
  expect([traffic.failures, traffic.allowed.length]).toEqual([[], 3]);
  expect(before).toBeGreaterThan(0);
  expect(most - before).toBeLessThan(3 * 32 * 1_048_576);
});

test("one of four engines hangs before its headers: those requests time out, others do not", async () => {
  const isTimeout = (failure: string): boolean => failure.includes("status 504");
  const traffic = await endure(() => injure({ kind: "hang-before-headers", count: 4 }), isTimeout);
  expect([traffic.failures, traffic.allowed.length]).toEqual([[], 4]);
});

test.each<Fault>([
  { kind: "slow", bytesPerS: 20_000 },
  { kind: "delay", delayMs: 100 },
])("the wire to an engine: $kind, and no request fails", async (fault) => {
  const traffic = await endure(() => breakWire(fault));
  expect(traffic.failures).toEqual([]);
});

test("the wire to an engine swallows everything: requests on it time out or are cut, the others go on", async () => {
  const isSwallowed = (failure: string): boolean => failure.includes("status 504") || failure.includes('"error":');
  const traffic = await endure(() => breakWire({ kind: "black-hole" }), isSwallowed);
  expect(traffic.failures).toEqual([]);
  expect(traffic.allowed.length).toBeLessThanOrEqual(20);
});

test("kept connections are reset while nothing is on them: the next requests do not notice", async () => {
  const traffic = startTraffic({ routers: () => [router] });
  await more(traffic, 20);
  await traffic.stop();
  tellChaos({ fault: "wire to an engine: reset" });
  wire.reset();
  const after = startTraffic({ routers: () => [router] });
  await more(after, 20);
  await after.stop();
  expect([...traffic.failures, ...after.failures]).toEqual([]);
});

test("a configuration that is broken on reload changes nothing", async () => {
  const traffic = await endure(async () => {
    tellChaos({ fault: "configuration: broken" });
    writeFileSync(file, "engines: [http://127.0.0.1:1]\nlisten: {prot: 5}\n");
    router.signal("SIGHUP");
    const isRefused = async (): Promise<boolean> =>
      (await router.metrics()).sum("espalier_config_last_reload_successful") === 0;
    await waitFor(isRefused, { what: "refused reload", deadlineMs: 20_000 });
  });
  expect(traffic.failures).toEqual([]);
});
