import type { StoredEvent } from "@espalier/engine-model/kv-events";
import type { EngineSimOptions } from "@espalier/engine-sim";
import { describe, expect, test } from "vitest";
import { blockNames, poolEventsOf } from "../src/transfer/block-store.ts";
import { followEvents, type PlainEvent } from "./event-feed.ts";
import { lastImport, longPrompt, type PdSim, startPd } from "./pd-client.ts";

const path = "/v1/completions";
const body = { prompt: longPrompt, max_tokens: 6 };

describe("how a pool tells of a change", () => {
  const content = { prompt: Uint32Array.from({ length: 12 }, (_, at) => at), adapter: "sql", cacheSalt: "s" };
  const prompt = { ...content, names: blockNames(content, 2), blockSize: 2 };

  test("runs of blocks that came, with their tokens and what is before them; then what went", () => {
    const events = poolEventsOf({ added: [0, 1, 4], removed: [prompt.names[5]!] }, prompt);
    expect(events).toMatchObject([
      { type: "stored", parentHash: undefined, blockSize: 2, adapter: "sql", cacheSalt: "s", medium: "EXTERNAL" },
      { type: "stored", blockSize: 2, medium: "EXTERNAL" },
      { type: "removed", medium: "EXTERNAL" },
    ]);
    const [first, second, gone] = events as [StoredEvent, StoredEvent, StoredEvent];
    expect([first.hashes.length, [...first.tokens]]).toEqual([2, [0, 1, 2, 3]]);
    expect([second.hashes.length, [...second.tokens]]).toEqual([1, [8, 9]]);
    const whole = poolEventsOf({ added: [0, 1, 2, 3, 4, 5], removed: [] }, prompt) as StoredEvent[];
    const names = whole[0]!.hashes;
    expect([...first.hashes, ...second.hashes, ...gone.hashes]).toEqual([names[0], names[1], names[4], names[5]]);
    expect(second.parentHash).toBe(names[3]);
    expect(new Set(names).size).toBe(6);
  });

  test("nothing where nothing changed", () => {
    expect(poolEventsOf({ added: [], removed: [] }, prompt)).toEqual([]);
  });
});

/** An engine with a pool that publishes, and one of another process that shares it. */
async function startPool(dialect: "vllm-0.32" | "sglang-0.5.23", options: EngineSimOptions = {}) {
  const holder = await startPd({ protocol: "shared-storage", poolEvents: { dialect } }, options);
  const storageUrl = `http://127.0.0.1:${holder.port}`;
  const reader = await startPd({ protocol: "shared-storage", storageUrl }, { seed: 1, ...options });
  // What follows an engine's events follows a pool's the same way, from its own place.
  const pool: PdSim = {
    ...holder,
    get: (at) => holder.get(at === "/sim/kv-events" ? "/sim/kv-pool" : at),
    post: (at, ...rest) => holder.post(at === "/sim/kv-events" ? "/sim/kv-pool" : at, ...rest),
  };
  return { holder, reader, pool, heard: await followEvents(pool) };
}

const tokensOf = (events: readonly PlainEvent[]): readonly number[] => events.flatMap(({ tokens }) => tokens);

describe.each(["vllm-0.32", "sglang-0.5.23"] as const)("a pool that speaks %s", (dialect) => {
  test("tells what an engine wrote once, whoever writes it again, and other engines load it", async () => {
    const { holder, reader, heard } = await startPool(dialect);
    await reader.post(path, body);
    await heard.caughtUp();
    expect(heard.events()).toMatchObject([
      { kind: "stored", tier: "external", parent: undefined, blockSize: 16, adapter: undefined, cacheSalt: undefined },
    ]);
    expect([heard.events()[0]!.hashes.length, tokensOf(heard.events()).length]).toEqual([6, 96]);
    await holder.post(path, body);
    expect(await lastImport(holder)).toEqual([96, 96]);
    await heard.caughtUp();
    expect(heard.messages).toHaveLength(1);
  });

  test("tells what goes on from what it has with its parent", async () => {
    const { reader, heard } = await startPool(dialect);
    await reader.post(path, body);
    await reader.post(path, { ...body, prompt: `${longPrompt}${"and on. ".repeat(20)}` });
    await heard.caughtUp();
    const [first, second] = heard.events();
    expect(second).toMatchObject({ kind: "stored", tier: "external", parent: first!.hashes.at(-1) });
    expect(tokensOf([second!]).length).toBe(second!.hashes.length * 16);
  });

  test("tells prompts of other adapters and salts apart", async () => {
    const { holder, heard } = await startPool(dialect, { adapters: ["sql"] });
    await holder.post(path, body);
    await holder.post(path, { ...body, cache_salt: "s" });
    await holder.post(path, { ...body, model: "sql" });
    await heard.caughtUp();
    const events = heard.events();
    expect(new Set(events.flatMap(({ hashes }) => hashes)).size).toBe(18);
    expect(events.map(({ cacheSalt }) => cacheSalt)).toEqual([undefined, "s", undefined]);
  });

  test("outlives the process of the engine it is beside", async () => {
    const { holder, reader, heard } = await startPool(dialect);
    await reader.post(path, body);
    await holder.post("/sim/reset", {});
    await holder.post(path, body);
    expect(await lastImport(holder)).toEqual([96, 96]);
    await heard.caughtUp();
    expect([heard.messages.length, heard.epochs]).toEqual([1, 1]);
  });
});

test("where there is no pool, or none that tells, nothing is told of one", async () => {
  const silent = await startPd({ protocol: "shared-storage" });
  expect((await silent.get("/sim/kv-pool")).status).toBe(404);
  const { reader, holder } = await startPool("vllm-0.32");
  expect((await reader.get("/sim/kv-pool")).status).toBe(404);
  expect((await holder.get("/sim/kv-pool")).json).toMatchObject({ dialect: "vllm-0.32", nextSequence: 0 });
  expect((await holder.get("/sim/kv-events")).status).toBe(404);
});

test.each([
  { blocks: ["a"], tokens: [1], blockSize: 16 },
  { blocks: ["a"], blockSize: 16 },
  { blocks: ["a"], tokens: [1, 2] },
  { blocks: "a", tokens: [], blockSize: 16 },
])("a store takes no blocks whose tokens are not told: %j", async (written) => {
  const sim = await startPd({ protocol: "shared-storage" });
  const url = `http://127.0.0.1:${sim.port}/storage/put`;
  const answer = await fetch(url, { method: "POST", body: JSON.stringify(written) });
  expect(answer.status).toBe(400);
  expect((await sim.transfers()).storedBlocks).toBe(0);
});
