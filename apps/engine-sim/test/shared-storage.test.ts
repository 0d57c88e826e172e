import { describe, expect, test } from "vitest";
import { lastImport, longPrompt, startPair, startPd, untilNothingHeld } from "./pd-client.ts";
import { at, type Json } from "./sim-client.ts";

const path = "/v1/completions";
const body = { prompt: longPrompt, max_tokens: 6 };
const protocol = { protocol: "shared-storage" } as const;

/** A decode engine that keeps the blocks, and a prefill engine of another process. */
async function startShared(more: Json = {}) {
  const decode = await startPd({ ...protocol, role: "decode" });
  const storageUrl = `http://127.0.0.1:${decode.port}`;
  const prefill = await startPd({ ...protocol, role: "prefill", storageUrl, ...more });
  return { prefill, decode };
}

describe("decode first", () => {
  test("a request of which too little is to be had is sent back, and goes through after a prefill", async () => {
    const { prefill, decode } = await startShared();
    const refused = await decode.post(path, { ...body, cache_hit_threshold: 0.8 });
    expect(refused.status).toBe(200);
    expect(at(refused.json, "choices", 0)).toMatchObject({ text: "", finish_reason: "cache_threshold" });
    expect(at(refused.json, "usage")).toMatchObject({ prompt_tokens: 100, completion_tokens: 0 });
    expect((await decode.state()).stats.steps).toBe(0);

    await prefill.post(path, { ...body, max_tokens: 1, cache_hit_threshold: 0 });
    expect((await decode.transfers()).storedBlocks).toBe(6);
    const answer = await decode.post(path, { ...body, cache_hit_threshold: 0.8 });
    expect(at(answer.json, "choices", 0, "finish_reason")).toBe("length");
    expect(await lastImport(decode)).toEqual([96, 96]);
    expect((await decode.transfers()).totals).toMatchObject({ belowThreshold: 1, imported: 1 });
    await untilNothingHeld(prefill, decode);
  });

  test("in a stream, the reason comes in the first event", async () => {
    const { decode } = await startShared();
    const events = await decode.events(path, { ...body, stream: true, cache_hit_threshold: 0.8 });
    expect(events).toHaveLength(2);
    expect(at(JSON.parse(events[0]?.data ?? ""), "choices", 0)).toMatchObject({
      text: "",
      finish_reason: "cache_threshold",
    });
    const chat = { messages: [{ role: "user", content: longPrompt }], stream: true, cache_hit_threshold: 1 };
    const reported = await decode.events("/v1/chat/completions", chat);
    expect(at(JSON.parse(reported[0]?.data ?? ""), "choices", 0, "finish_reason")).toBe("cache_threshold");
    expect(reported.at(-1)?.data).toBe("[DONE]");
  });

  test("what the engine itself has cached counts", async () => {
    const { decode } = await startShared({});
    await decode.post(path, body);
    const answer = await decode.post(path, { ...body, cache_hit_threshold: 0.96 });
    expect(at(answer.json, "choices", 0, "finish_reason")).toBe("length");
    const refused = await decode.post(path, { ...body, cache_hit_threshold: 0.97 });
    expect(at(refused.json, "choices", 0, "finish_reason")).toBe("cache_threshold");
  });

  test.each([-0.1, 1.1, "much"])("%s is no threshold", async (threshold) => {
    const { decode } = await startShared();
    expect((await decode.post(path, { ...body, cache_hit_threshold: threshold })).status).toBe(400);
  });
});

test("engines of one process share without being told where", async () => {
  const { prefill, decode } = await startPair(protocol);
  await prefill.post(path, { ...body, max_tokens: 1 });
  await decode.post(path, body);
  // These are two processes as far as storage goes: each has its own.
  expect(await lastImport(decode)).toEqual([0, 0]);
  await prefill.post("/reset_prefix_cache", {});
  await prefill.post(path, body);
  expect(await lastImport(prefill)).toEqual([96, 96]);
});

test("blocks of other adapters and salts are others", async () => {
  const sim = await startPd(protocol, { adapters: ["tuned"] });
  await sim.post(path, body);
  for (const more of [{ model: "tuned" }, { cache_salt: "a" }]) {
    await sim.post(path, { ...body, ...more });
    expect(await lastImport(sim)).toEqual([0, 0]);
  }
});

test("a storage that is not there holds nothing", async () => {
  const sim = await startPd({ ...protocol, storageUrl: "http://127.0.0.1:9" });
  const answer = await sim.post(path, body);
  expect(answer.status).toBe(200);
  expect((await sim.transfers()).totals).toMatchObject({ recomputed: 1, imported: 0 });
});
