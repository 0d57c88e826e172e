import { type KvTransferProtocol, kvTransferProtocols } from "@espalier/core";
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { type Json, openPost } from "./client.ts";
import {
  ask,
  countOf,
  longChat,
  nothingLeaks,
  type PairSim,
  pairRouter,
  pairSims,
  splitConfig,
} from "./disaggregation-rig.ts";
import { createRig, type RunningRouter, type Sim } from "./rig.ts";

/** Those that the simulated engines speak. */
const simulated = kvTransferProtocols.filter((protocol) => protocol !== "llm-d-sidecar");
const rig = createRig();
afterEach(() => rig.close());

/** Faults come one after another, and no engine is to be left alone for them. */
const withLongTimeouts = {
  breaker: { "consecutive-failures": 1_000, "window-requests": 100_000 },
  retry: { "budget-minimum": 100 },
  health: { interval: "10m" },
};

interface Fleet {
  readonly router: RunningRouter;
  readonly prefill: PairSim;
  readonly decode: PairSim;
  readonly pair: readonly PairSim[];
  readonly alone: Sim;
}

/** A pair, and an engine that needs nobody. */
async function fleetOf(protocol: KvTransferProtocol): Promise<Fleet> {
  const pair = await pairSims(rig, { protocol, roles: ["prefill", "decode"] });
  const [alone] = await rig.sims(1);
  const engines = [...pair.map(({ entry }) => entry), alone!.url];
  const router = await rig.router({ engines, config: { ...splitConfig, ...withLongTimeouts } });
  return { router, pair, prefill: pair[0]!, decode: pair[1]!, alone: alone! };
}

/** What goes wrong at one of the engines, and what the router says of it. */
const faults: readonly (readonly [string, "prefill" | "decode", Json, readonly string[]])[] = [
  ["the prefill engine refuses", "prefill", { kind: "status", status: 503 }, ["prefill_failed"]],
  ["the prefill engine finds the request wrong", "prefill", { kind: "status", status: 400 }, ["prefill_failed"]],
  [
    "the prefill engine closes the connection",
    "prefill",
    { kind: "reset-before-headers", count: 2 },
    ["prefill_failed"],
  ],
  ["the prefill engine dies in the prompt", "prefill", { kind: "reset-mid-prefill" }, ["prefill_failed"]],
  // With a 503 it would be left alone for a while.
  ["the decode engine refuses", "decode", { kind: "status", status: 502 }, ["decode_failed"]],
  ["the decode engine fails", "decode", { kind: "status", status: 500 }, ["transfer_failed", "decode_failed"]],
  ["the decode engine closes the connection", "decode", { kind: "reset-before-headers", count: 2 }, ["decode_failed"]],
];

/** Of those whose decode engine fetches what it needs. */
const transferFaults: typeof faults = [
  ["the blocks are refused", "prefill", { kind: "transfer-refused" }, ["transfer_failed", "prefill_failed"]],
  ["the transfer breaks", "prefill", { kind: "transfer-broken" }, ["transfer_failed", "prefill_failed"]],
];

const fetching = new Set<KvTransferProtocol>(["nixl", "sglang", "mooncake", "trtllm"]);

test.each(simulated)("%s: whatever fails before the answer, one engine gives it", async (protocol) => {
  const { router, pair, prefill, decode } = await fleetOf(protocol);
  for (const [name, at, fault, reasons] of fetching.has(protocol) ? [...faults, ...transferFaults] : faults) {
    const before = await countAll(router, reasons);
    const faulty = at === "prefill" ? prefill : decode;
    // A connection that was used before is dialled once more.
    await faulty.fault({ count: 1, ...fault });
    const answer = await ask(router, longChat(name, { stream: true }));
    expect([name, answer.status, answer.engines[0]]).toEqual([name, 200, "-"]);
    expect([name, answer.text.includes("[DONE]")]).toEqual([name, true]);
    expect([name, await countAll(router, reasons)]).toEqual([name, before + 1]);
    await faulty.clearFaults();
  }
  const healthy = await ask(router, longChat("at last"));
  expect([healthy.status, healthy.engines]).toEqual([200, [prefill.id, decode.id]]);
  await nothingLeaks(router, pair);
});

async function countAll(router: RunningRouter, reasons: readonly string[]): Promise<number> {
  const counts = await Promise.all(reasons.map((reason) => countOf(router, "aggregated", reason)));
  return counts.reduce((sum, count) => sum + count, 0);
}

test.each(simulated)("%s: a client that goes away leaves nothing behind at either engine", async (protocol) => {
  const { router, pair, prefill, decode } = await fleetOf(protocol);
  const url = `${router.url}/v1/chat/completions`;
  const leave = async (sim: PairSim, body: Json, isThere: (text: string) => boolean): Promise<void> => {
    const open = openPost(url, body);
    await waitFor(async () => (await inFlight(router, sim)) > 0, { what: "a leg" });
    await waitFor(() => isThere(open.received()), { what: "the moment to leave" });
    open.destroy();
    await router.untilIdle();
  };
  await prefill.fault({ kind: "hang-before-headers", count: 1 });
  await leave(prefill, longChat("while the prompt is computed", { stream: true }), () => true);
  await decode.fault({ kind: "hang-mid-stream", count: 1, afterEvents: 2 });
  await leave(decode, longChat("while it is answered", { stream: true }), (text) => text.includes("data: "));
  await nothingLeaks(router, pair);
  for (const sim of pair) await waitFor(async () => (await active(sim)) === 0, { what: `nothing at ${sim.id}` });
});

async function inFlight(router: RunningRouter, { id }: PairSim): Promise<number> {
  const engine = (await router.engines()).find((candidate) => candidate.id === id);
  return engine?.targets[0]?.load.in_flight ?? 0;
}

async function active(sim: PairSim): Promise<number> {
  return (await sim.active()).length;
}

test("engines that need each other: without a prefill engine there is no answer, and with another pair there is", async () => {
  const sims = await pairSims(rig, { protocol: "sglang", roles: ["prefill", "prefill", "decode"] });
  const router = await pairRouter(rig, sims, withLongTimeouts);
  await sims[0]!.fault({ kind: "status", status: 503 });
  for (const name of ["a", "b", "c", "d"]) {
    const answer = await ask(router, longChat(name));
    expect([answer.status, answer.engines]).toEqual([200, [sims[1]!.id, sims[2]!.id]]);
  }
  await sims[1]!.fault({ kind: "status", status: 503 });
  const none = await ask(router, longChat("e"));
  expect(none.status).toBeGreaterThanOrEqual(500);
  await nothingLeaks(router, sims);
});

test("nixl: what was computed is not lost when the decode engine is: another one fetches it", async () => {
  const sims = await pairSims(rig, { protocol: "nixl", roles: ["prefill", "decode", "decode"] });
  const router = await pairRouter(rig, sims, withLongTimeouts);
  let count = 0;
  const [prefill, faulty] = sims;
  await faulty!.fault({ kind: "reset-before-headers", count: 1 });
  // Sooner or later one is sent to the engine that fails.
  const asked = await waitFor(
    async () => {
      const { status, engines } = await ask(router, longChat(`story ${++count}`));
      expect([status, engines[0]]).toEqual([200, prefill!.id]);
      return (await router.metrics()).sum("espalier_proxy_attempts_total", { outcome: "reset" }) === 1 && count;
    },
    { what: "a decode engine that fails" },
  );
  expect((await prefill!.requests()).length).toBe(asked);
  expect(await countOf(router, "disaggregated", "threshold")).toBe(asked);
  await nothingLeaks(router, sims);
});

test("no prefill engine is up: the others answer alone", async () => {
  const sims = await pairSims(rig, { protocol: "nixl", roles: ["prefill", "decode"] });
  const router = await pairRouter(rig, sims);
  const drained = await router.admin("PATCH", `/admin/engines/${sims[0]!.id}`, { draining: true });
  expect(drained.status).toBe(200);
  const answer = await ask(router, longChat("a"));
  expect([answer.status, answer.engines]).toEqual([200, ["-", sims[1]!.id]]);
  expect(await countOf(router, "aggregated", "no_prefill_engine")).toBe(1);
});
