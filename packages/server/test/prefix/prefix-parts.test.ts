import {
  createSeededRandom,
  type HttpClient,
  silentLogger,
  silentMeter,
  systemClock,
  systemScheduler,
} from "@espalier/core";
import { createKvEventPublisher } from "@espalier/engine-model/kv-events";
import { createFleet, type Target } from "@espalier/engines";
import { createCandidateSet } from "@espalier/policies";
import { createPrefixIndex } from "@espalier/prefix-index";
import { createLocalBindings, maxKnownTargets } from "@espalier/routing";
import { createSeriesMeter, waitFor } from "@espalier/testing";
import { afterEach, describe, expect, test } from "vitest";
import { loadConfig } from "../../src/config/index.ts";
import { createPrefixParts, type PrefixParts } from "../../src/prefix/prefix-parts.ts";
import { bodyOf } from "./body-of.ts";
import { stored } from "./fake-events.ts";
import { specOf, startScriptedFleet, vllmPage } from "./scripted-fleet.ts";

const releases: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const release of releases.splice(0).reverse()) await release();
});

const configOf = (text: string) => loadConfig({ file: { path: "espalier.yaml", text } });
const tokens = Uint32Array.from({ length: 96 }, (_, at) => at);
const source = {
  model: "m",
  parent: undefined,
  endpoint: "completions",
  body: bodyOf({ prompt: [...tokens, 7] }),
  estimatedTokens: 97,
};

async function heldBy({ knowledge, reader }: PrefixParts, target: Target): Promise<number> {
  const prompt = await reader.read(source);
  const candidates = createCandidateSet();
  knowledge.match(prompt);
  knowledge.describe(target, prompt, candidates, candidates.add(target.key, 0));
  return candidates.matchedTokens[0]!;
}

describe("without events", () => {
  async function start(yaml = "") {
    const scripted = await startScriptedFleet();
    const meter = createSeriesMeter();
    const { fleet, http, time } = scripted;
    const config = configOf(`kv-events: { mode: off }\n${yaml}`);
    const parts = createPrefixParts({
      ...time,
      ...{ config, fleet, http, lookups: http, meter, random: createSeededRandom(1), logger: silentLogger },
      ...{
        index: createPrefixIndex({ maxTargets: maxKnownTargets }),
        sharing: undefined,
        bindings: createLocalBindings(time.clock),
      },
    });
    await parts.start();
    releases.push(() => parts.stop());
    return { ...scripted, parts, meter };
  }

  test("there are no feeds, and no engine is asked for any", async () => {
    const { parts, apply, asked } = await start();
    await apply(specOf("a"));
    expect(parts.feeds).toBeUndefined();
    expect(asked("a")).toEqual([]);
  });

  test("prompts are believed where they were sent, for as long and as many as configured", async () => {
    const { parts, apply, target, time } = await start("prefix: { placement-ttl: 5s, placement-tokens: 1024 }");
    await apply(specOf("a"));
    parts.knowledge.place(target("a"), await parts.reader.read(source), 0);
    expect(await heldBy(parts, target("a"))).toBe(96);
    const large = { ...source, body: bodyOf({ prompt: Array.from({ length: 1_008 }, (_, at) => at + 500) }) };
    parts.knowledge.place(target("a"), await parts.reader.read(large), 0);
    expect(await heldBy(parts, target("a"))).toBe(16);
    await time.advanceAsync(5_000);
    expect(await heldBy(parts, target("a"))).toBe(0);
  });

  test("an engine that was restarted holds nothing of what was sent to the old one", async () => {
    const { parts, apply, target, answers, time } = await start();
    answers.a = { "/metrics": vllmPage({ blockSize: 16, blocks: 100, promptTokens: 500 }) };
    answers.b = { "/metrics": vllmPage({ blockSize: 16, blocks: 100, promptTokens: 500 }) };
    await apply(specOf("a"), specOf("b"));
    for (const key of ["a", "b"]) parts.knowledge.place(target(key), await parts.reader.read(source), 0);
    answers.a = { "/metrics": vllmPage({ blockSize: 16, blocks: 100, promptTokens: 20 }) };
    await time.advanceAsync(2_000);
    expect([await heldBy(parts, target("a")), await heldBy(parts, target("b"))]).toEqual([0, 96]);
  });

  test("an engine that falls asleep holds nothing of what was sent to it", async () => {
    const { parts, apply, target, answers, time } = await start();
    const page = (awake: number): string =>
      `vllm:cache_config_info{block_size="16",num_gpu_blocks="101"} 1\nvllm:engine_sleep_state{sleep_state="awake"} ${awake}\n`;
    for (const key of ["a", "b"]) answers[key] = { "/metrics": page(1) };
    await apply(specOf("a"), specOf("b"));
    for (const key of ["a", "b"]) parts.knowledge.place(target(key), await parts.reader.read(source), 0);
    answers.a = { "/metrics": page(0) };
    await time.advanceAsync(2_000);
    expect([await heldBy(parts, target("a")), await heldBy(parts, target("b"))]).toEqual([0, 96]);
  });

  test("an engine that takes the target index of one that is gone holds nothing of it", async () => {
    const { parts, apply, target } = await start();
    await apply(specOf("a"));
    const { index } = target("a");
    parts.knowledge.place(target("a"), await parts.reader.read(source), 0);
    await apply(specOf("b"));
    expect(target("b").index).toBe(index);
    expect(await heldBy(parts, target("b"))).toBe(0);
  });

  test("sizes are told every second, without what has expired", async () => {
    const { parts, apply, target, time, meter } = await start("prefix: { placement-ttl: 5s }");
    await apply(specOf("a"));
    parts.knowledge.place(target("a"), await parts.reader.read(source), 0);
    const blocks = () => meter.value("espalier_prefix_index_blocks", "placements");
    expect(blocks()).toBeUndefined();
    await time.advanceAsync(1_000);
    expect([blocks(), meter.value("espalier_prefix_index_blocks", "facts")]).toEqual([6, 0]);
    expect(meter.value("espalier_prefix_index_bytes")).toBeGreaterThan(0);
    await time.advanceAsync(6_000);
    expect(blocks()).toBe(0);
  });

  test("the end leaves the fleet without a listener, and no timer of its own", async () => {
    const { parts, apply, target, fleet, time } = await start();
    await apply(specOf("a"));
    const prompt = await parts.reader.read(source);
    await parts.stop();
    parts.knowledge.place(target("a"), prompt, 0);
    const { index } = target("a");
    await apply();
    await apply(specOf("b"));
    expect(target("b").index).toBe(index);
    expect(await heldBy(parts, target("b"))).toBe(96);
    await apply();
    await fleet.stop();
    await time.advanceAsync(60_000);
    expect(time.pendingCount).toBe(0);
  });
});

/** An engine with real sockets for its events, and a page of metrics that a test writes. */
async function startEngine() {
  const [clock, scheduler] = [systemClock, systemScheduler];
  const publisher = createKvEventPublisher({
    ...{ topic: "kv-events", dialect: "vllm-0.32", replayPort: 0, clock, logger: silentLogger },
  });
  await publisher.start();
  releases.push(() => publisher.stop());
  const pages: Record<string, string> = {
    "/health": "",
    "/v1/models": JSON.stringify({ data: [{ id: "m", object: "model" }] }),
    "/metrics": vllmPage({ blockSize: 16, blocks: 100, promptTokens: 500 }),
  };
  const http: HttpClient = async ({ url }) => {
    const body = pages[new URL(url).pathname];
    return { status: body === undefined ? 404 : 200, headers: {}, body: body ?? "" };
  };
  const options = { scrape: { intervalMs: 10 } };
  const ports = { clock, scheduler, http, random: createSeededRandom(1), logger: silentLogger, meter: silentMeter };
  const fleet = createFleet({ ...ports, options });
  const parts = createPrefixParts({
    ...{
      ...ports,
      lookups: http,
      fleet,
      config: configOf(""),
      sharing: undefined,
      bindings: createLocalBindings(clock),
    },
    index: createPrefixIndex({ maxTargets: maxKnownTargets }),
  });
  await parts.start();
  await fleet.start();
  releases.push(
    () => parts.stop(),
    () => fleet.stop(),
  );
  // In an engine's own answer an endpoint without a star is one that it dials; its entry is what is to be dialled.
  fleet.apply([
    specOf("127.0.0.1", {
      kvEvents: { endpoint: publisher.endpoint, replay: publisher.replayEndpoint, topic: "kv-events" },
    }),
  ]);
  const target = fleet.engines[0]!.targets[0]!;
  const quality = () => parts.feeds?.feedQualityOf(target.index);
  await waitFor(() => quality() === "complete", { what: "a complete feed" });
  return { publisher, fleet, parts, pages, target };
}

describe("with events over real sockets", () => {
  test("what an engine tells is what it is thought to hold", async () => {
    const { publisher, parts, target } = await startEngine();
    publisher.publish([stored(tokens, { first: 1, size: 16 })]);
    await waitFor(() => parts.feeds?.describe()[0]?.blocks.gpu === 6, { what: "6 blocks" });
    expect(await heldBy(parts, target)).toBe(96);
  });

  // The feed hears of a new epoch at once, the metrics up to a scrape later. That second notice emptied the index of
  // what the new epoch had told, while the ledger of the feed, and the quality in it, took it to be there for good.
  test("metrics that tell of a restart after the events did leave what the new epoch told", async () => {
    const { publisher, parts, pages, fleet, target } = await startEngine();
    publisher.publish([stored(tokens, { first: 1, size: 16 })]);
    publisher.publish([stored(tokens, { first: 100, size: 16 })]);
    await waitFor(() => parts.feeds?.describe()[0]?.lastSequence === 1, { what: "the old epoch" });
    publisher.restart();
    publisher.publish([stored(tokens.subarray(0, 64), { first: 1, size: 16 })]);
    await waitFor(() => parts.feeds?.describe()[0]?.restarts === 1, { what: "the new epoch" });
    await waitFor(() => parts.feeds?.describe()[0]?.blocks.gpu === 4, { what: "4 blocks" });

    let restarts = 0;
    fleet.onChange((change) => {
      if (change === "restarted") restarts++;
    });
    pages["/metrics"] = vllmPage({ blockSize: 16, blocks: 100, promptTokens: 64 });
    await waitFor(() => restarts === 1, { what: "metrics of the new epoch" });
    expect(await heldBy(parts, target)).toBe(64);
    publisher.publish([stored(tokens.subarray(64, 96), { first: 5, parent: 4, size: 16 })]);
    await waitFor(() => parts.feeds?.describe()[0]?.blocks.gpu === 6, { what: "6 blocks" });
    expect(await heldBy(parts, target)).toBe(96);
  });
});
