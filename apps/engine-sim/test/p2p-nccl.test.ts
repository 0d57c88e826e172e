import { waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import { lastImport, longPrompt, type PdSim, startPair, untilNothingHeld } from "./pd-client.ts";
import { openRequest } from "./sim-client.ts";

const path = "/v1/completions";
const protocol = { protocol: "p2p-nccl" } as const;
const body = { prompt: longPrompt, max_tokens: 6 };

/** The id that both legs have: it says where either engine is. */
const idFor = (prefill: PdSim, decode: PdSim, name = "1") => ({
  "x-request-id": `___prefill_addr_127.0.0.1:${prefill.port}___decode_addr_127.0.0.1:${decode.port}_${name}`,
});

test("the prefill sends its blocks to the address in the id, and the decode takes what came under it", async () => {
  const { prefill, decode } = await startPair(protocol);
  const id = idFor(prefill, decode);
  expect((await prefill.post(path, { ...body, max_tokens: 1 }, id)).status).toBe(200);
  expect((await prefill.transfers()).pinned).toBe(0);
  expect((await decode.transfers()).inbox).toEqual({ held: 1, waiting: 0 });
  expect((await decode.post(path, body, id)).status).toBe(200);
  expect(await lastImport(decode)).toEqual([99, 99]);
  await untilNothingHeld(prefill, decode);
});

test("a decode whose blocks never come gives up after a time, by policy", async () => {
  const { prefill, decode } = await startPair({ ...protocol, timeoutMs: 100 });
  expect((await decode.post(path, body, idFor(prefill, decode))).status).toBe(500);
  const lenient = await startPair({ ...protocol, timeoutMs: 100, onFailure: "recompute" });
  const answer = await lenient.decode.post(path, body, idFor(prefill, lenient.decode));
  expect(answer.status).toBe(200);
  await untilNothingHeld(decode, lenient.decode);
});

test("blocks for a decode that never comes are dropped after a time", async () => {
  const { prefill, decode } = await startPair({ ...protocol, timeoutMs: 100 });
  await prefill.post(path, { ...body, max_tokens: 1 }, idFor(prefill, decode));
  await untilNothingHeld(prefill, decode);
});

test("a caller who goes away waits no longer", async () => {
  const { prefill, decode } = await startPair(protocol);
  const request = openRequest(decode.url + path, body, idFor(prefill, decode));
  await waitFor(async () => (await decode.transfers()).inbox.waiting === 1, { what: "a waiting decode" });
  request.destroy();
  await untilNothingHeld(decode);
});

test("a decode engine that is not there is no concern of the prefill", async () => {
  const { prefill, decode } = await startPair(protocol);
  const { "x-request-id": id } = idFor(prefill, decode);
  const answer = await prefill.post(
    path,
    { ...body, max_tokens: 1 },
    { "x-request-id": id.replace(/decode_addr_[^_]+/, "decode_addr_127.0.0.1:9") },
  );
  expect(answer.status).toBe(200);
  await untilNothingHeld(prefill);
});

test("ids without addresses are plain requests", async () => {
  const { prefill, decode } = await startPair(protocol);
  for (const sim of [prefill, decode]) {
    expect((await sim.post(path, body, { "x-request-id": "plain" })).status).toBe(200);
    expect(await lastImport(sim)).toEqual([0, 0]);
  }
});
