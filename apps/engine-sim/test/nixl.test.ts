import { waitFor } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import {
  lastImport,
  longPrompt,
  longPromptTokens,
  type PdSim,
  startPair,
  startPd,
  untilNothingHeld,
} from "./pd-client.ts";
import { at, type Json, openRequest, parseEvents } from "./sim-client.ts";

const path = "/v1/completions";
const body = { prompt: longPrompt, max_tokens: 8 };
const wanted = {
  do_remote_decode: true,
  do_remote_prefill: false,
  remote_engine_id: null,
  remote_block_ids: null,
  remote_host: null,
  remote_port: null,
};

/** The first leg; returns what the second one must bring along. */
async function prefillLeg(prefill: PdSim, more: Json = {}): Promise<Json> {
  const answer = await prefill.post(path, { ...body, max_tokens: 1, kv_transfer_params: wanted, ...more });
  expect(answer.status).toBe(200);
  return answer.json.kv_transfer_params as Json;
}

const decodeLeg = (decode: PdSim, params: unknown, more: Json = {}) =>
  decode.post(path, { ...body, kv_transfer_params: params, ...more });

describe("two legs", () => {
  test("the prefill answers with the address of its blocks, and holds them until they are fetched", async () => {
    const { prefill, decode } = await startPair({ protocol: "nixl" });
    const params = await prefillLeg(prefill);
    const held = await prefill.transfers();
    expect(params).toMatchObject({
      do_remote_prefill: true,
      do_remote_decode: false,
      remote_block_ids: [[1, 2, 3, 4, 5, 6, 7]],
      remote_engine_id: held.engineId,
      remote_host: "127.0.0.1",
      remote_port: prefill.port,
      tp_size: 1,
    });
    expect(held).toMatchObject({
      protocol: "nixl",
      role: "prefill",
      pinned: 1,
      exports: [{ phase: "held", tokens: 100 }],
    });
    expect(held.exports[0]?.ticket).toBe(params.remote_request_id);

    const answer = await decodeLeg(decode, params);
    expect(answer.status).toBe(200);
    expect(at(answer.json, "usage", "prompt_tokens")).toBe(longPromptTokens);
    expect(await lastImport(decode)).toEqual([99, 99]);
    await untilNothingHeld(prefill, decode);
    expect((await prefill.transfers()).totals).toMatchObject({ offered: 1, fetched: 1, expired: 0, lost: 0 });
    expect((await decode.transfers()).totals).toMatchObject({
      imported: 1,
      importedTokens: 99,
      mismatched: 0,
      failed: 0,
    });
  });
});

describe("what does not come", () => {
  const cases: [string, (params: Json) => Json][] = [
    ["a request that is not known", (params) => ({ ...params, remote_request_id: "nobody's" })],
    ["an engine of another epoch", (params) => ({ ...params, remote_engine_id: "0123456789abcdef" })],
    ["an engine that is not there", (params) => ({ ...params, remote_port: 9 })],
  ];

  test.each(cases)("%s fails the request, as vLLM does", async (_what, change) => {
    const { prefill, decode } = await startPair({ protocol: "nixl" });
    const answer = await decodeLeg(decode, change(await prefillLeg(prefill)));
    expect(answer.status).toBe(500);
    expect(answer.json.error).toMatchObject({ type: "InternalServerError", message: "Internal server error" });
    expect((await decode.transfers()).totals).toMatchObject({ failed: 1, imported: 0, fetching: 0 });
    expect((await prefill.transfers()).pinned).toBe(1);
    await untilNothingHeld(decode);
  });

  test.each(cases)("%s is computed instead, where that is the policy", async (_what, change) => {
    const { prefill, decode } = await startPair({ protocol: "nixl", onFailure: "recompute" });
    const answer = await decodeLeg(decode, change(await prefillLeg(prefill)));
    expect(answer.status).toBe(200);
    expect(await lastImport(decode)).toEqual([0, 0]);
    expect((await decode.transfers()).totals).toMatchObject({ recomputed: 1, failed: 0 });
  });

  test.each(["remote_host", "remote_port", "remote_engine_id", "remote_request_id", "remote_block_ids"])(
    "parameters without %s are passed over",
    async (name) => {
      const { prefill, decode } = await startPair({ protocol: "nixl" });
      const params = await prefillLeg(prefill);
      const answer = await decodeLeg(decode, { ...params, [name]: null });
      expect(answer.status).toBe(200);
      expect(await lastImport(decode)).toEqual([0, 0]);
    },
  );

  test("a stream is told in its events, after the head", async () => {
    const { decode } = await startPair({ protocol: "nixl" });
    const params = { ...wanted, do_remote_decode: false, do_remote_prefill: true };
    const where = { remote_engine_id: "e", remote_block_ids: [[1]], remote_host: "127.0.0.1", remote_port: 9 };
    const events = await decode.events(path, {
      ...body,
      stream: true,
      kv_transfer_params: { ...params, ...where, remote_request_id: "r" },
    });
    expect(events.map(({ data }) => data)).toEqual([expect.stringContaining('"code":500'), "[DONE]"]);
    expect((await decode.state()).totals).toMatchObject({ rejected: 1, finished: 0 });
  });

  test.each(["transfer-refused", "transfer-broken"])(
    "the fault %s fails one transfer, and the blocks wait for the next",
    async (kind) => {
      const { prefill, decode } = await startPair({ protocol: "nixl" });
      await prefill.post("/sim/faults", { kind, count: 1 });
      const params = await prefillLeg(prefill);
      expect((await decodeLeg(decode, params)).status).toBe(500);
      expect((await prefill.transfers()).pinned).toBe(1);
      await waitFor(async () => (await prefill.transfers()).exports[0]?.isClaimed === false, { what: "a lost engine" });
      expect((await decodeLeg(decode, params)).status).toBe(200);
      await untilNothingHeld(prefill, decode);
    },
  );

  test("a slow transfer is slow", async () => {
    const { prefill, decode } = await startPair({ protocol: "nixl" });
    const params = await prefillLeg(prefill);
    expect((await prefill.post("/sim/faults", { kind: "transfer-slow" })).status).toBe(400);
    await prefill.post("/sim/faults", { kind: "transfer-slow", delayMs: 100 });
    const sinceMs = (await decode.state()).engineMs;
    expect((await decodeLeg(decode, params)).status).toBe(200);
    expect((await decode.state()).engineMs - sinceMs).toBeGreaterThan(100 * 99);
  });

  // It was fetched for ever by an engine that was gone.
  test("an engine that goes away before a slow transfer begins has fetched nothing: the blocks are given back in time", async () => {
    const prefill = await startPd({ protocol: "nixl", role: "prefill", timeoutMs: 300 });
    const { remote_request_id: ticket } = await prefillLeg(prefill);
    await prefill.post("/sim/faults", { kind: "transfer-slow", delayMs: 100 });
    const claim = JSON.stringify({ ticket });
    const url = `http://127.0.0.1:${prefill.port}/kv/claim`;
    const answer = fetch(url, { method: "POST", body: claim, signal: AbortSignal.timeout(30) });
    await expect(answer).rejects.toThrow();
    await untilNothingHeld(prefill);
    expect((await prefill.transfers()).totals).toMatchObject({ offered: 1, expired: 1, fetched: 0 });
  });

  test("a prefill whose process dies while blocks are on their way", async () => {
    // Half an hour of engine time for the transfer: eighteen seconds here.
    const slow = { protocol: "nixl", setupMs: 1_800_000 } as const;
    const { prefill, decode } = await startPair(slow);
    const lenient = await startPd({ ...slow, role: "decode", onFailure: "recompute" });
    const strict = decodeLeg(decode, await prefillLeg(prefill));
    const lenientAnswer = decodeLeg(lenient, await prefillLeg(prefill));
    for (const sim of [decode, lenient]) {
      await waitFor(async () => (await sim.transfers()).importing === 1, { what: "a transfer" });
    }
    await prefill.post("/sim/reset", {});
    expect((await strict).status).toBe(500);
    expect((await lenientAnswer).status).toBe(200);
    expect(await lastImport(lenient)).toEqual([0, 0]);
    await untilNothingHeld(prefill, decode, lenient);
  });
});

describe("what nobody wants", () => {
  test("is given back after a time", async () => {
    const prefill = await startPd({ protocol: "nixl", role: "prefill", timeoutMs: 150 });
    await prefillLeg(prefill);
    await untilNothingHeld(prefill);
    expect((await prefill.transfers()).totals).toMatchObject({ offered: 1, expired: 1, fetched: 0 });
    // It stays in the cache.
    await prefillLeg(prefill);
    expect(await lastImport(prefill)).toEqual([0, 96]);
  });

  test("blocks of which the decode engine has all are given back at once", async () => {
    const { prefill, decode } = await startPair({ protocol: "nixl", setupMs: 1_800_000 });
    const cached = { prompt: longPrompt.slice(0, 68), max_tokens: 1 };
    await decode.post(path, cached);
    const { json } = await prefill.post(path, { ...cached, kv_transfer_params: wanted });
    expect((await prefill.transfers()).pinned).toBe(1);
    const answer = await decode.post(path, { ...cached, kv_transfer_params: json.kv_transfer_params });
    expect(answer.status).toBe(200);
    await untilNothingHeld(prefill, decode);
  });

  test("a caller who goes away during the transfer frees the blocks on both sides", async () => {
    const { prefill, decode } = await startPair({ protocol: "nixl", setupMs: 1_800_000 });
    const params = await prefillLeg(prefill);
    const request = openRequest(decode.url + path, { ...body, stream: true, kv_transfer_params: params });
    await waitFor(async () => (await decode.transfers()).importing === 1, { what: "a transfer" });
    expect((await prefill.transfers()).exports[0]?.isClaimed).toBe(true);
    request.destroy();
    await untilNothingHeld(prefill, decode);
    expect((await decode.state()).totals).toMatchObject({ aborted: 1 });
  });

  test("a prefill that is not answered pins nothing", async () => {
    const prefill = await startPd({ protocol: "nixl", role: "prefill" }, { speed: 1 });
    const request = openRequest(prefill.url + path, {
      ...body,
      prompt: longPrompt.repeat(40),
      kv_transfer_params: wanted,
    });
    await waitFor(async () => (await prefill.state()).stats.running === 1, { what: "a running prefill" });
    request.destroy();
    await untilNothingHeld(prefill);
    expect((await prefill.transfers()).totals.offered).toBe(0);
  });

  test("a prefill whose connection breaks before its first token pins nothing", async () => {
    const prefill = await startPd({ protocol: "nixl", role: "prefill" });
    await prefill.post("/sim/faults", { kind: "reset-mid-prefill", count: 1 });
    await expect(prefillLeg(prefill)).rejects.toThrow();
    await untilNothingHeld(prefill);
    expect((await prefill.state()).requests.map(({ outcome, fault }) => [outcome, fault])).toEqual([
      ["faulted", "reset-mid-prefill"],
    ]);
  });

  test("a process that dies takes what it held with it, and its name", async () => {
    const { prefill, decode } = await startPair({ protocol: "nixl" });
    const params = await prefillLeg(prefill);
    const { engineId } = await prefill.transfers();
    await prefill.post("/sim/reset", {});
    const after = await prefill.transfers();
    expect(after).toMatchObject({ pinned: 0, exports: [], port: prefill.port });
    expect(after.engineId).not.toBe(engineId);
    expect((await decodeLeg(decode, params)).status).toBe(500);
  });

  test("an answer that stops by itself holds no blocks", async () => {
    const prefill = await startPd({ protocol: "nixl" }, { naturalLengthMean: 1 });
    const answer = await prefill.post(path, { ...body, max_tokens: 100, kv_transfer_params: wanted });
    expect(at(answer.json, "choices", 0, "finish_reason")).toBe("stop");
    expect(answer.json.kv_transfer_params).toBeNull();
    expect((await prefill.transfers()).pinned).toBe(0);
  });

  test("several answers have no legs", async () => {
    const prefill = await startPd({ protocol: "nixl" });
    const answer = await prefill.post(path, { ...body, n: 2, kv_transfer_params: wanted });
    expect(answer.json.kv_transfer_params).toBeNull();
    expect((await prefill.transfers()).pinned).toBe(0);
  });
});

test("a transfer takes its time on the engine's clock: set-up, bytes and link", async () => {
  const transfer = { protocol: "nixl", setupMs: 2_000, bytesPerToken: 1_000, linkBytesPerSecond: 10_000 } as const;
  const { prefill, decode } = await startPair(transfer);
  await decodeLeg(decode, await prefillLeg(prefill));
  const [report] = (await decode.state()).requests.at(-1)?.reports ?? [];
  // 99 tokens of 1,000 bytes at 10,000 bytes a second.
  expect((report?.scheduledMs ?? 0) - (report?.arrivedMs ?? 0)).toBeCloseTo(2_000 + 9_900, 3);
});

test("blocks of another prompt serve as far as it is the same", async () => {
  const { prefill, decode } = await startPair({ protocol: "nixl" });
  const params = await prefillLeg(prefill, { prompt: `${longPrompt.slice(0, 200)}${"other ".repeat(40)}` });
  const answer = await decodeLeg(decode, params);
  expect(answer.status).toBe(200);
  expect(await lastImport(decode)).toEqual([50, 50]);
  expect((await decode.transfers()).totals).toMatchObject({ mismatched: 1, imported: 1 });
  await untilNothingHeld(prefill, decode);
});

test("chats stream through two engines, and KV events tell of what came", async () => {
  const prefill = await startPd({ protocol: "nixl", role: "prefill" });
  const decode = await startPd({ protocol: "nixl", role: "decode" }, { kvEvents: { dialect: "auto" } });
  const chat = { messages: [{ role: "user", content: longPrompt }], max_tokens: 5 };
  const first = await prefill.post("/v1/chat/completions", { ...chat, max_tokens: 1, kv_transfer_params: wanted });
  const events = await decode.events("/v1/chat/completions", {
    ...chat,
    stream: true,
    kv_transfer_params: first.json.kv_transfer_params,
  });
  expect(parseEvents(events.map(({ data }) => `data: ${data}\n\n`).join(""))).toHaveLength(7);
  const { stats } = await decode.state();
  expect(stats.importedTokens).toBeGreaterThan(90);
  expect(stats.cachedBlocks).toBeGreaterThan(5);
});
