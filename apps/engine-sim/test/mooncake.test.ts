import { waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import { lastImport, longPrompt, type PdSim, startPair, untilNothingHeld } from "./pd-client.ts";
import { at, type Json, openRequest } from "./sim-client.ts";

const path = "/v1/completions";
const protocol = { protocol: "mooncake" } as const;
const body = { prompt: longPrompt, max_tokens: 6 };

const prefillBody = (transferId: string) => ({
  ...body,
  max_tokens: 1,
  kv_transfer_params: { do_remote_decode: true, do_remote_prefill: false, transfer_id: transferId },
});

/** Looks the engine up as a router does. */
async function decodeBody(prefill: PdSim, transferId: string) {
  const address = `http://127.0.0.1:${prefill.port}`;
  const ranks = (await (await fetch(`${address}/query`)).json()) as Record<string, { engine_id: string }>;
  const params = {
    do_remote_prefill: true,
    do_remote_decode: false,
    transfer_id: transferId,
    remote_bootstrap_addr: address,
    remote_engine_id: ranks["0"]?.engine_id,
  };
  return { ...body, kv_transfer_params: params as Json };
}

test("the bootstrap server names the engine of every rank", async () => {
  const { prefill } = await startPair(protocol);
  const ranks = (await (await fetch(`http://127.0.0.1:${prefill.port}/query`)).json()) as Json;
  expect(Object.keys(ranks)).toEqual(["0"]);
  expect(at(ranks, "0", "engine_id")).toBe((await prefill.transfers()).engineId);
});

test.each(["prefill", "decode"])("both legs at once, the %s first", async (first) => {
  const { prefill, decode } = await startPair(protocol);
  const second = await decodeBody(prefill, "xfer-1");
  const sendPrefill = () => prefill.post(path, prefillBody("xfer-1"));
  const sendDecode = () => decode.post(path, second);
  const legs = first === "prefill" ? [sendPrefill(), sendDecode()] : [sendDecode(), sendPrefill()];
  const answers = await Promise.all(legs);
  expect(answers.map(({ status }) => status)).toEqual([200, 200]);
  expect(await lastImport(decode)).toEqual([99, 99]);
  await untilNothingHeld(prefill, decode);
  expect((await prefill.transfers()).totals).toMatchObject({ offered: 1, fetched: 1 });
});

test("the prefill answers before its blocks are fetched, and holds them", async () => {
  const { prefill, decode } = await startPair(protocol);
  const answer = await prefill.post(path, prefillBody("xfer-1"));
  expect(answer.json.kv_transfer_params).toBeNull();
  expect(await prefill.transfers()).toMatchObject({ pinned: 1, exports: [{ ticket: "xfer-1", phase: "held" }] });
  expect((await decode.post(path, await decodeBody(prefill, "xfer-1"))).status).toBe(200);
  await untilNothingHeld(prefill, decode);
});

test("a decode that waits for a prefill that goes away fails", async () => {
  const { prefill, decode } = await startPair(protocol, { speed: 1 });
  const long = { ...prefillBody("xfer-1"), prompt: longPrompt.repeat(40) };
  const first = openRequest(prefill.url + path, long);
  const second = decode.post(path, { ...(await decodeBody(prefill, "xfer-1")), prompt: long.prompt });
  await waitFor(async () => (await prefill.transfers()).exports[0]?.isClaimed === true, { what: "a waiting decode" });
  await waitFor(async () => (await prefill.state()).stats.running === 1, { what: "a running prefill" });
  first.destroy();
  expect((await second).status).toBe(500);
  await untilNothingHeld(prefill, decode);
});

test("a caller of the decode who goes away before there are blocks frees them when they come", async () => {
  const { prefill, decode } = await startPair(protocol, { speed: 1 });
  const long = { ...prefillBody("xfer-1"), prompt: longPrompt.repeat(40) };
  const first = prefill.post(path, long);
  const second = openRequest(decode.url + path, { ...(await decodeBody(prefill, "xfer-1")), prompt: long.prompt });
  await waitFor(async () => (await prefill.transfers()).exports[0]?.isClaimed === true, { what: "a waiting decode" });
  second.destroy();
  expect((await first).status).toBe(200);
  await untilNothingHeld(prefill, decode);
});

test("an engine of another epoch is not the one that was asked for", async () => {
  const { prefill, decode } = await startPair(protocol);
  const stale = await decodeBody(prefill, "xfer-1");
  await prefill.post("/sim/reset", {});
  expect((await decode.post(path, stale)).status).toBe(500);
});

test("a transfer that never comes, and blocks that nobody fetches, are given up after a time", async () => {
  const { prefill, decode } = await startPair({ ...protocol, timeoutMs: 150, onFailure: "recompute" });
  const answer = await decode.post(path, await decodeBody(prefill, "xfer-1"));
  expect(answer.status).toBe(200);
  expect(await lastImport(decode)).toEqual([0, 0]);
  await prefill.post(path, prefillBody("xfer-2"));
  await untilNothingHeld(prefill, decode);
  expect((await prefill.transfers()).totals).toMatchObject({ offered: 1, expired: 1 });
});

test("a transfer id is one request's alone, and parameters without one are passed over", async () => {
  const { prefill } = await startPair(protocol);
  await prefill.post(path, prefillBody("xfer-1"));
  expect((await prefill.post(path, prefillBody("xfer-1"))).status).toBe(400);
  const plain = { ...prefillBody(""), kv_transfer_params: { do_remote_decode: true } };
  expect((await prefill.post(path, plain)).status).toBe(200);
  expect((await prefill.transfers()).pinned).toBe(1);
});

test("incomplete parameters of a decode are passed over", async () => {
  const { prefill, decode } = await startPair(protocol);
  const { kv_transfer_params: params } = await decodeBody(prefill, "xfer-1");
  const answer = await decode.post(path, {
    ...body,
    kv_transfer_params: { ...params, remote_bootstrap_addr: "prefill" },
  });
  expect(answer.status).toBe(200);
  expect(await lastImport(decode)).toEqual([0, 0]);
});
