import { afterEach, beforeEach, expect, test } from "vitest";
import { registerEngines } from "../src/commands/engines.ts";
import { registerFeeds } from "../src/commands/feeds.ts";
import { registerStatus } from "../src/commands/status.ts";
import { runCommand } from "./run-command.ts";
import { temporaryServer } from "./temporary.ts";

/** Tables of routers and engines were 100 to 160 characters wide, which a terminal of 80 columns cuts into pieces. */
const columns = 80;
const { isTTY, columns: columnsBefore } = process.stdout;
beforeEach(() => {
  Object.assign(process.stdout, { isTTY: true, columns });
});
afterEach(() => {
  Object.assign(process.stdout, { isTTY, columns: columnsBefore });
});

async function shown(register: Parameters<typeof runCommand>[0], command: string, answer: object): Promise<string> {
  const admin = await temporaryServer(({ response }) => response.end(JSON.stringify(answer)));
  const { stdout, error } = await runCommand(register, command, "--admin", admin);
  expect(error).toBeUndefined();
  return stdout;
}

const widthOf = (text: string): number => Math.max(...text.split("\n").map((line) => line.length));

const engine = {
  ...{ id: "gpu-node-17.cluster.local:8000", url: "http://gpu-node-17.cluster.local:8000", state: "down" },
  ...{
    reason: "connect ECONNREFUSED 10.0.0.17:8000 after 3 probes",
    draining: true,
    role: "both",
    assigned_role: "prefill",
  },
  ...{ models: ["meta-llama/Llama-3.3-70B-Instruct", "adapter-one"], breaker: { state: "half_open" } },
  ...{
    oldest_wait_ms: 123_456,
    unresponsive_ms: null,
    trouble: "down",
    last_minute: { ttft_ms: 12_345, tpot_ms: 123.4 },
  },
  targets: [{ load: { in_flight: 123 }, signals: { running: 64, waiting: 1_024, kv_use: 0.987 } }],
};

test("engines fit, with all that is said of them", async () => {
  const text = await shown(registerEngines, "engines", { engines: [engine, { ...engine, id: "b" }] });
  expect(widthOf(text)).toBeLessThanOrEqual(columns);
  for (const said of [engine.id, "half_open", "1024", "98.7", "Llama-3.3-70B-Instruct", "ECONNREFUSED"]) {
    expect(text).toContain(said);
  }
});

test("feeds fit", async () => {
  const feed = {
    ...{ target: "gpu-node-17.cluster.local:8000", state: "replaying", reason: "gap-after-restart", role: "backup" },
    ...{ owner: "router-east-1", endpoint: "tcp://gpu-node-17.cluster.local:5557", lastSequence: 4_711_000 },
    ...{ blocks: { gpu: 80_000 }, floatingBlocks: 12, messages: 4_712_000, gaps: 10, restarts: 1, lagMs: 3 },
  };
  const text = await shown(registerFeeds, "feeds", { feeds: [feed] });
  expect(widthOf(text)).toBeLessThanOrEqual(columns);
  for (const said of [feed.target, feed.endpoint, "4711000", "4712000", "80000"]) expect(text).toContain(said);
});

test("a router among others fits, and so does why it is not ready", async () => {
  const member = {
    ...{ router: "router-europe-west-2", epoch: 1, state: "suspect", isDraining: true, isLinked: true },
    ...{ address: "router-2.cluster.local:7946", roundTripMs: 0.456, lagMs: 12.34, sentBytesPerS: 1_234_567 },
    ...{ receivedBytesPerS: 99.4, bufferedBytes: 123_456 },
    ...{ version: "0.1.0", settings: "0a1b2c3d", differs: ["admission", "disaggregation", "policy", "tokenizers"] },
  };
  const mesh = {
    ...{ backend: "peers", router: "router-europe-west-1", epoch: 1_700_000_000_001, members: [member, member] },
    ...{ address: "router-1.cluster.local:7946", feeds: { owned: 300, backup: 200, unowned: 100 } },
    facts: { targets: 600, blocks: 12_345_678, settled: 555, digest: "00112233445566ff" },
    journals: { count: 4, bytes: 98_765 },
    droppedEstimates: [{ kind: "times", count: 12_345 }],
    droppedEntries: [],
    lost: [{ router: "router-europe-west-3", address: "router-3.cluster.local:7946", sinceMs: 1_700_000_000_000 }],
    refused: [
      {
        ...{ address: "router-4.cluster.local:7946", by: "self", reason: "block-size", count: 1_000, lastMs: 0 },
        detail: "blocks of 16 tokens here, of 32 there",
      },
    ],
  };
  const status = {
    ...{ version: "0.1.0", settings: "0a1b2c3d" },
    ...{
      ready: false,
      reasons: ["no engine is usable", "peers", "the feeds of 12 engines are not read yet, and more"],
    },
    ...{ draining: false, inFlight: 0, engines: 1, usableEngines: 1, mesh, lastReload: null },
    troubledEngines: [{ engine: engine.id, trouble: `down: ${engine.reason}` }],
    totals: { requests: 1_000_000, answered: 950_000, refused: 10_000, failed: 999, cut: 123, cancelled: 38_878 },
    goodput: [
      {
        model: "a-model-with-a-long-name",
        class: "interactive",
        met: 940_000,
        missed: 20_000,
        ttftMs: 2_000,
        tpotMs: 50,
      },
    ],
    models: Array.from({ length: 12 }, (_, at) => `model-number-${at}`),
  };
  const text = await shown(registerStatus, "status", status);
  expect(widthOf(text)).toBeLessThanOrEqual(columns);
  for (const said of ["model-number-11", "00112233445566ff", member.address, "1234567"]) expect(text).toContain(said);
});
