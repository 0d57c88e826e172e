import { createEventDecoder } from "@espalier/engine-model/kv-events";
import { type EngineSimOptions, startEngineSim } from "@espalier/engine-sim";
import { waitFor } from "@espalier/testing";
import { describe, expect, onTestFinished, test } from "vitest";
import { parseCommandLine } from "../src/command-line.ts";
import { channelOf, followEvents, listenToEvents, plainEvents } from "./event-feed.ts";
import { at, clientOf, type Json, prompt, type TestSim } from "./sim-client.ts";

type P2p = NonNullable<EngineSimOptions["p2p"]>;

const completions = "/v1/completions";

interface Peer extends TestSim {
  readonly p2pPort: number;
  /** What `/sim/p2p` tells. */
  peers(): Promise<{ readonly consumer: Record<string, number>; readonly source: Record<string, number> } & Json>;
}

/** Engines of one process that pull from each other, a hundred times faster than life unless told otherwise. */
async function startPeers(p2p: P2p = {}, options: EngineSimOptions = {}): Promise<readonly [Peer, Peer]> {
  const parameters = { blockSize: 16, blockCount: 400, cpuBlocks: 400, ...options.parameters };
  const sim = await startEngineSim({
    ...{ engines: 2, speed: 100, models: ["tiny"], ...options },
    parameters,
    p2p: { port: 0, ...p2p },
  });
  onTestFinished(() => sim.stop());
  const [first, second] = sim.engines.map(({ url, p2pPort = 0 }) => {
    const client = clientOf(url, sim.stop);
    const peers = async () => (await client.get("/sim/p2p")).json as Awaited<ReturnType<Peer["peers"]>>;
    return { ...client, p2pPort, peers };
  });
  return [first!, second!];
}

const sourceOf = ({ p2pPort }: Peer, id = "pull-1"): Json => ({
  kv_transfer_params: { remote_kv_source: { kv_request_id: id, remote_host: "127.0.0.1", remote_port: p2pPort } },
});

const complete = async (sim: TestSim, tokens: readonly number[], more: Json = {}): Promise<unknown> => {
  const { status, json } = await sim.post(completions, { prompt: tokens, max_tokens: 4, ...more });
  expect(status).toBe(200);
  return at(json, "usage", "prompt_tokens_details", "cached_tokens");
};

/** Waits until nothing is on its way between the engines. */
async function untilQuiet(...sims: readonly Peer[]): Promise<void> {
  for (const sim of sims) {
    await waitFor(
      async () => {
        const { consumer, source } = await sim.peers();
        const { active } = await sim.state();
        return consumer.pulling! + source.sending! + source.queued! + active.length === 0;
      },
      { what: "engines between which nothing moves", deadlineMs: 15_000 },
    );
  }
}

test("a conversation moves to another engine, which pulls what was said so far", async () => {
  const [first, second] = await startPeers({}, { parameters: { cpuWrites: "all" } });
  const messages = [{ role: "user", content: "tell me of the river ".repeat(40) }];
  const chat = "/v1/chat/completions";
  const answer = await first.post(chat, { messages, max_tokens: 40 });
  const reply = at(answer.json, "choices", 0, "message", "content");
  const next = [...messages, { role: "assistant", content: reply }, { role: "user", content: "and of the sea?" }];
  const spoken = Number(at(answer.json, "usage", "total_tokens"));
  const moved = await second.post(chat, { messages: next, max_tokens: 4, ...sourceOf(first) });
  const cached = Number(at(moved.json, "usage", "prompt_tokens_details", "cached_tokens"));
  expect(cached).toBeGreaterThan(spoken - 40);
  expect(cached % 16).toBe(0);
  const { requests, stats } = await second.state();
  expect(requests.at(-1)?.reports[0]).toMatchObject({ cachedTokens: cached, pulledTokens: cached, importedTokens: 0 });
  expect(stats).toMatchObject({ pulls: 1, pulledTokens: cached, loadedTokens: cached });
  // From then on they are its own.
  const again = await second.post(chat, { messages: next, max_tokens: 4 });
  expect(Number(at(again.json, "usage", "prompt_tokens_details", "cached_tokens"))).toBeGreaterThanOrEqual(cached);
  expect(await first.peers()).toMatchObject({ source: { served: 1, sentTokens: cached } });
  await untilQuiet(first, second);
});

test("streams, token by token, with several answers, and across processes", async () => {
  const [first] = await startPeers();
  const [second] = await startPeers({}, { engines: 1 });
  const tokens = prompt(1, 101);
  await complete(first, tokens);
  const events = await second.events(completions, {
    ...{ prompt: tokens, max_tokens: 4, n: 2, stream: true, stream_options: { include_usage: true } },
    ...sourceOf(first),
  });
  expect(events.at(-1)?.data).toBe("[DONE]");
  expect(at(JSON.parse(events.at(-2)?.data ?? ""), "usage", "prompt_tokens_details", "cached_tokens")).toBe(96);
  await untilQuiet(first);
});

test("engine time of a pull is its latency, its link and the load; transfers of one pair share it", async () => {
  const [first, second] = await startPeers(
    { latencyMs: 200, bytesPerToken: 1_000, bytesPerSecond: 1e6, pairBytesPerSecond: 1e5 },
    { speed: 1, parameters: { cpuLoadMsPerBlock: 10 } },
  );
  await complete(first, prompt(1, 33));
  expect(await complete(second, prompt(1, 33), sourceOf(first))).toBe(32);
  const report = (await second.state()).requests.at(-1)?.reports[0];
  // 200 ms, 32 kB at 100 kB/s, two blocks.
  expect(report!.firstTokenMs! - report!.arrivedMs!).toBeGreaterThan(200 + 320 + 20);
});

test.each([true, false])("self-describing KV events of CPU memory: %s", async (selfDescribingKvEvents) => {
  const [first, second] = await startPeers({}, { kvEvents: { dialect: "vllm-0.32" }, selfDescribingKvEvents });
  const raw = await listenToEvents(second);
  await complete(first, prompt(1, 101));
  await complete(second, prompt(1, 101), sourceOf(first));
  // Published with the next step.
  await complete(second, prompt(2, 20));
  const { nextSequence } = await channelOf(second);
  await raw.received(nextSequence);
  const decoder = createEventDecoder();
  const events = raw.messages.flatMap(({ payload }) => {
    expect(decoder.decode(payload)).toMatchObject({ refused: undefined, malformedEvents: 0, unknownMedia: 0 });
    return plainEvents(decoder.batch);
  });
  const inCpu = events.filter(({ tier, kind }) => tier === "cpu" && kind === "stored");
  expect(inCpu).toHaveLength(7);
  for (const { hashes, tokens, blockSize } of inCpu) {
    expect(hashes).toHaveLength(1);
    expect([tokens.length, blockSize]).toEqual(selfDescribingKvEvents ? [16, 16] : [0, 0]);
  }
  if (!selfDescribingKvEvents) return;
  const pulled = inCpu.slice(0, 6);
  expect(pulled.flatMap(({ tokens }) => tokens)).toEqual(prompt(1, 96));
  expect(pulled.map(({ parent }) => parent)).toEqual([undefined, ...pulled.slice(0, 5).map(({ hashes }) => hashes[0])]);
});

test("a router's feed of described events knows what both memories of an engine will give", async () => {
  const more = { kvEvents: { dialect: "vllm-0.32" }, selfDescribingKvEvents: true } as const;
  const [first, second] = await startPeers({}, { ...more, parameters: { blockCount: 14, cpuBlocks: 20 } });
  const events = await followEvents(second);
  for (let round = 1; round <= 6; round++) {
    const tokens = [...prompt(1 + (round % 2), 101), ...prompt(10 + round, 30)];
    await complete(first, tokens.slice(0, 101));
    await complete(second, tokens, sourceOf(first));
    await complete(second, prompt(20 + round, 20));
    await events.caughtUp();
    const { stats } = await second.state();
    expect(events.holdings.cpuBlocks).toBe(stats.cpuBlocks);
    expect(events.holdings.blocks).toBe(stats.cachedBlocks);
    const predicted = events.holdings.match(tokens, { limit: tokens.length - 1 });
    expect(await complete(second, tokens)).toBe(predicted);
  }
  expect((await second.state()).stats.pulls).toBeGreaterThan(1);
});

test("the engine describes itself as one that is configured so, and its metrics are those of vLLM", async () => {
  const [first, second] = await startPeers({ bytesPerToken: 1_000 }, { selfDescribingKvEvents: true });
  expect(at((await first.get("/server_info")).json, "vllm_config", "kv_transfer_config")).toEqual({
    kv_connector: "OffloadingConnector",
    kv_role: "kv_both",
    kv_connector_extra_config: {
      spec_name: "TieringOffloadingSpec",
      cpu_bytes_to_use: 400 * 16 * 1_000,
      offload_prompt_only: true,
      self_describing_kv_events: true,
      secondary_tiers: [{ type: "p2p", host: "127.0.0.1", port: first.p2pPort }],
    },
  });
  await complete(first, prompt(1, 101));
  await complete(second, prompt(1, 101), sourceOf(first));
  const page = (await second.get("/metrics")).text;
  expect(page).toMatch(/^vllm:kv_offload_tiering_read_bytes_total\{.*tier="0:p2p"\} 96000\.0$/m);
  expect(page).toMatch(/^vllm:kv_offload_load_bytes_total\{.*\} 96000\.0$/m);
  expect(page).toMatch(/^vllm:external_prefix_cache_hits_total\{.*\} 96\.0$/m);
});

describe("a request is computed when", () => {
  test("its source is gone", async () => {
    const [first, second] = await startPeers();
    const gone = await startEngineSim({ p2p: { port: 0 }, parameters: { cpuBlocks: 10 } });
    const port = gone.engines[0]?.p2pPort;
    await gone.stop();
    expect(await complete(second, prompt(1, 101), sourceOf({ ...first, p2pPort: port! }))).toBe(0);
    expect((await second.state()).stats).toMatchObject({ pulls: 0, emptyPulls: 1 });
  });

  test.each(["transfer-refused", "transfer-broken", "transfer-missing"])("of the fault %s", async (kind) => {
    const [first, second] = await startPeers();
    await complete(first, prompt(1, 101));
    await first.post("/sim/faults", { kind, count: 1 });
    expect(await complete(second, prompt(1, 101), sourceOf(first))).toBe(0);
    await untilQuiet(first, second);
    // Life goes on.
    await second.post("/reset_prefix_cache", {});
    expect(await complete(second, prompt(1, 101), sourceOf(first))).toBe(96);
  });

  test("its source is slower than the time limit", async () => {
    const [first, second] = await startPeers({ timeoutMs: 30 });
    await complete(first, prompt(1, 101));
    await first.post("/sim/faults", { kind: "transfer-slow", delayMs: 60_000, count: 1 });
    expect(await complete(second, prompt(1, 101), sourceOf(first))).toBe(0);
    await untilQuiet(first, second);
  });

  test("its source has blocks of another size", async () => {
    const [first] = await startPeers({}, { parameters: { blockSize: 32 } });
    const [second] = await startPeers();
    await complete(first, prompt(1, 101));
    expect(await complete(second, prompt(1, 101), sourceOf(first))).toBe(0);
  });

  test("its source crashes meanwhile", async () => {
    const [first, second] = await startPeers({ latencyMs: 0, bytesPerToken: 1e9, pairBytesPerSecond: 1e6 });
    await complete(first, prompt(1, 101));
    const answer = complete(second, prompt(1, 101), sourceOf(first));
    await waitFor(async () => (await first.peers()).source.sending === 1, { what: "a transfer" });
    await first.post("/sim/reset", {});
    expect(await answer).toBe(0);
    await untilQuiet(first, second);
  });

  test.each([
    [{}],
    [{ kv_request_id: "a", remote_host: "127.0.0.1" }],
    [{ kv_request_id: 7, remote_host: "127.0.0.1", remote_port: 5_710 }],
    [{ kv_request_id: "a", remote_host: "127.0.0.1", remote_port: 70_000 }],
  ])("its source is named as %j", async (source) => {
    const [, second] = await startPeers();
    expect(await complete(second, prompt(1, 101), { kv_transfer_params: { remote_kv_source: source } })).toBe(0);
    expect((await second.state()).stats).toMatchObject({ pulls: 0, emptyPulls: 0 });
  });
});

test("a slow source only takes its time", async () => {
  const [first, second] = await startPeers();
  await complete(first, prompt(1, 101));
  await first.post("/sim/faults", { kind: "transfer-slow", delayMs: 20, count: 1 });
  expect(await complete(second, prompt(1, 101), sourceOf(first))).toBe(96);
});

test("a client that disconnects ends its pull at both ends", async () => {
  const [first, second] = await startPeers({ bytesPerToken: 1e9, pairBytesPerSecond: 1e6 });
  await complete(first, prompt(1, 101));
  const client = new AbortController();
  const body = JSON.stringify({ prompt: prompt(1, 101), max_tokens: 4, ...sourceOf(first) });
  const headers = { "content-type": "application/json" };
  const answer = fetch(`${second.url}${completions}`, { method: "POST", body, headers, signal: client.signal });
  await waitFor(async () => (await first.peers()).source.sending === 1, { what: "a transfer" });
  client.abort();
  await expect(answer).rejects.toThrow();
  await untilQuiet(first, second);
  expect(await first.peers()).toMatchObject({ source: { cancelled: 1, served: 0 } });
});

test("past the bound of waiting pulls, a request is computed, and the others are served", async () => {
  const limits = { maxTransfers: 1, maxQueued: 1, latencyMs: 0, bytesPerToken: 1e6, pairBytesPerSecond: 2e6 };
  const [first, second] = await startPeers(limits);
  for (const each of [1, 2, 3]) await complete(first, prompt(each, 101));
  const busy = (name: string, count: number): Promise<unknown> =>
    waitFor(async () => (await first.peers()).source[name] === count, { what: `${name} of ${count}` });
  const served = [complete(second, prompt(1, 101), sourceOf(first, "a"))];
  await busy("sending", 1);
  served.push(complete(second, prompt(2, 101), sourceOf(first, "b")));
  await busy("queued", 1);
  expect(await complete(second, prompt(3, 101), sourceOf(first, "c"))).toBe(0);
  expect(await Promise.all(served)).toEqual([96, 96]);
  expect((await first.peers()).source).toMatchObject({ refused: 1, served: 2 });
});

test.each([
  ["GET", "/kv/pull", undefined, 404],
  ["POST", "/kv/push", "{}", 404],
  ["POST", "/kv/pull", "not json", 400],
  ["POST", "/kv/pull", "[]", 400],
  ["POST", "/kv/pull", "{}", 400],
  [
    "POST",
    "/kv/pull",
    JSON.stringify({ id: "a", to: "b", tokens: [1], blockSize: 16, fromTokens: 0, toTokens: 16 }),
    400,
  ],
  [
    "POST",
    "/kv/pull",
    JSON.stringify({ id: "a", to: "b", tokens: [1, 2], blockSize: 1, fromTokens: 2, toTokens: 2 }),
    400,
  ],
])("the side channel answers %s %s with %s by %i", async (method, path, body, status) => {
  const [first] = await startPeers();
  const answer = await fetch(`http://127.0.0.1:${first.p2pPort}${path}`, { method, ...(body && { body }) });
  expect(answer.status).toBe(status);
  await answer.text();
});

test("an engine without the tier ignores sources, and has no such state", async () => {
  const sim = await startEngineSim({ speed: 100, models: ["tiny"] });
  onTestFinished(() => sim.stop());
  const client = clientOf(sim.engines[0]!.url, sim.stop);
  expect(await complete(client, prompt(1, 101), sourceOf({ p2pPort: 1 } as Peer))).toBe(0);
  expect((await client.get("/sim/p2p")).status).toBe(404);
});

test("flags make the options", () => {
  const flags =
    "--cpu-blocks 9 --cpu-writes all --self-describing-kv-events --p2p --p2p-port 6000 --p2p-bytes-per-token 10 " +
    "--p2p-bytes-per-second 2e9 --p2p-pair-bytes-per-second 1e9 --p2p-latency-ms 3 --p2p-transfers 4 --p2p-queue 5 " +
    "--p2p-timeout-ms 600";
  const { options } = parseCommandLine(flags.split(" "));
  expect(options.parameters).toMatchObject({ cpuBlocks: 9, cpuWrites: "all" });
  expect(options.selfDescribingKvEvents).toBe(true);
  expect(options.p2p).toEqual({
    ...{ port: 6_000, bytesPerToken: 10, bytesPerSecond: 2e9, pairBytesPerSecond: 1e9, latencyMs: 3 },
    ...{ maxTransfers: 4, maxQueued: 5, timeoutMs: 600 },
  });
  expect(parseCommandLine(["--p2p"]).options.p2p).toEqual({});
  expect(parseCommandLine([]).options.p2p).toBeUndefined();
  expect(() => parseCommandLine(["--p2p-port", "1"])).toThrow("--p2p-port needs --p2p");
  expect(() => parseCommandLine(["--p2p", "--p2p-queue", "long"])).toThrow("--p2p-queue is a number");
  expect(() => parseCommandLine(["--cpu-writes", "none"])).toThrow("--cpu-writes is prompt or all");
});

test.each<[EngineSimOptions, string]>([
  [{ p2p: {}, parameters: {} }, "p2p needs"],
  [{ p2p: {}, parameters: { flavour: "sglang", cpuBlocks: 4, cpuWrites: "write_back" } }, "p2p needs"],
  [{ p2p: {}, transfer: { protocol: "nixl" } }, "p2p does not go with"],
  [{ p2p: { port: 65_536 } }, "p2p-port"],
  [{ p2p: { port: 65_535 }, engines: 2 }, "the ports of p2p"],
  [{ p2p: { bytesPerToken: 0 } }, "p2p-bytes-per-token"],
  [{ p2p: { bytesPerSecond: -1 } }, "p2p-bytes-per-second"],
  [{ p2p: { pairBytesPerSecond: Number.NaN } }, "p2p-pair-bytes-per-second"],
  [{ p2p: { latencyMs: -1 } }, "p2p-latency-ms"],
  [{ p2p: { maxTransfers: 65_537 } }, "p2p-transfers"],
  [{ p2p: { maxQueued: 65_537 } }, "p2p-queue"],
  [{ p2p: { timeoutMs: 0 } }, "p2p-timeout-ms"],
])("refuses %j and names it", async (options, word) => {
  const parameters = { cpuBlocks: 10 };
  await expect(startEngineSim({ parameters, ...options })).rejects.toThrow(RangeError);
  await expect(startEngineSim({ parameters, ...options })).rejects.toThrow(word);
});
