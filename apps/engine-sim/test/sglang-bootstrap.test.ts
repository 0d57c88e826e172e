import { waitFor } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { lastImport, longPrompt, type PdSim, startPair, startPd, untilNothingHeld } from "./pd-client.ts";
import { at, type Json, openRequest } from "./sim-client.ts";

const path = "/v1/completions";
const sglang = { parameters: { flavour: "sglang" } } as const;
const protocol = { protocol: "sglang-bootstrap" } as const;
/** Beyond the whole numbers of JavaScript: 2^63 - 25. */
const farRoom = "9223372036854775783";

/** The body of both legs. The room is a number in JSON, and stays one. */
function bodyFor(prefill: PdSim, room: string, more: Json = {}): string {
  const fields = {
    prompt: longPrompt,
    max_tokens: 8,
    bootstrap_host: "127.0.0.1",
    bootstrap_port: prefill.port,
    ...more,
  };
  return JSON.stringify(fields).replace(/}$/, `,"bootstrap_room":${room}}`);
}

/** The tickets of an engine, with what has become of each. */
const rooms = async (sim: PdSim) => (await sim.transfers()).exports.map(({ ticket, phase }) => [ticket, phase]);

describe("two legs at once", () => {
  test("meet in a room, whose number keeps every digit", async () => {
    const { prefill, decode } = await startPair(protocol, sglang);
    const body = bodyFor(prefill, farRoom);
    const first = prefill.post(path, body);
    await waitFor(async () => (await rooms(prefill)).length === 1, { what: "a room" });
    expect(await rooms(prefill)).toEqual([[farRoom, "computing"]]);
    // Nothing is computed for a decode engine that has not called.
    expect((await prefill.state()).stats.steps).toBe(0);

    const second = await decode.post(path, body);
    expect(second.status).toBe(200);
    expect(at(second.json, "usage", "completion_tokens")).toBe(8);
    const drained = await first;
    expect(drained.status).toBe(200);
    expect(at(drained.json, "usage", "completion_tokens")).toBe(1);
    expect(at(drained.json, "choices", 0, "finish_reason")).toBe("length");
    expect(await lastImport(decode)).toEqual([99, 99]);
    await untilNothingHeld(prefill, decode);
    expect((await prefill.transfers()).totals).toMatchObject({ offered: 1, fetched: 1 });
  });
});

describe("what does not come", () => {
  test("a request without a room is refused by both, with or without a stream", async () => {
    const { prefill, decode } = await startPair(protocol, sglang);
    for (const sim of [prefill, decode]) {
      const answer = await sim.post(path, { prompt: "x", max_tokens: 1 });
      expect(answer.status).toBe(400);
      expect(answer.text).toContain("without bootstrap room");
      expect((await sim.post("/generate", { text: "x", stream: true })).status).toBe(400);
    }
  });

  test.each(["-1", "1.5", '"room"', "9223372036854775808"])("%s is no room", async (room) => {
    const { prefill } = await startPair(protocol, sglang);
    expect((await prefill.post(path, bodyFor(prefill, room))).status).toBe(400);
  });

  test("an engine without a role pays no attention to rooms", async () => {
    const sim = await startPd(protocol, sglang);
    const answer = await sim.post(path, bodyFor(sim, "1"));
    expect(answer.status).toBe(200);
    expect(at(answer.json, "usage", "completion_tokens")).toBe(8);
    expect((await sim.transfers()).exports).toEqual([]);
  });

  test("a decode engine needs to be told where, and engines with a role give one answer at a time", async () => {
    const { prefill, decode } = await startPair(protocol, sglang);
    expect((await decode.post(path, { prompt: "x", bootstrap_room: 7 })).text).toContain("bootstrap_host");
    expect((await prefill.post(path, { prompt: ["x", "y"], bootstrap_room: 7 })).status).toBe(400);
  });

  test("a room without a prefill is left after a time", async () => {
    const { prefill, decode } = await startPair({ ...protocol, timeoutMs: 150 }, sglang);
    const answer = await decode.post(path, bodyFor(prefill, farRoom));
    expect(answer.status).toBe(500);
    expect(answer.text).toContain(`Decode transfer failed for request rank=0 ${farRoom}: timed out after 150 ms`);
    await untilNothingHeld(prefill, decode);
  });

  test("a room without a decode is left after a time, and nothing was computed for it", async () => {
    const { prefill } = await startPair({ ...protocol, timeoutMs: 150 }, sglang);
    const answer = await prefill.post(path, bodyFor(prefill, "12"));
    expect(answer.status).toBe(500);
    expect(answer.text).toContain("Prefill bootstrap failed for request rank=0 12: timed out");
    expect((await prefill.state()).stats.steps).toBe(0);
    await untilNothingHeld(prefill);
  });

  test("a room is one request's alone", async () => {
    const { prefill, decode } = await startPair(protocol, sglang);
    const body = bodyFor(prefill, "12");
    const first = prefill.post(path, body);
    await waitFor(async () => (await rooms(prefill)).length === 1, { what: "a room" });
    const second = await prefill.post(path, body);
    expect(second.status).toBe(400);
    expect(second.text).toContain("in use");
    expect((await decode.post(path, body)).status).toBe(200);
    expect((await first).status).toBe(200);
  });

  test("a prefill that goes away fails the decode at once", async () => {
    const { prefill, decode } = await startPair(protocol, { ...sglang, speed: 1 });
    const body = JSON.parse(bodyFor(prefill, "12", { prompt: longPrompt.repeat(40) })) as Json;
    const first = openRequest(prefill.url + path, body);
    const second = decode.post(path, body);
    await waitFor(async () => (await prefill.state()).stats.running === 1, { what: "a running prefill" });
    first.destroy();
    expect((await second).status).toBe(500);
    await untilNothingHeld(prefill, decode);
  });

  test("a decode that goes away fails the prefill, and its blocks are free", async () => {
    const { prefill, decode } = await startPair({ ...protocol, setupMs: 1_800_000 }, sglang);
    const body = JSON.parse(bodyFor(prefill, "12")) as Json;
    const second = openRequest(decode.url + path, { ...body, stream: true });
    const first = prefill.post(path, body);
    await waitFor(async () => (await decode.transfers()).importing === 1, { what: "a transfer" });
    expect(await rooms(prefill)).toEqual([["12", "held"]]);
    await decode.post("/sim/reset", {});
    await second.ended;
    expect(await first).toMatchObject({ status: 500, text: expect.stringContaining("the fetching engine is lost") });
    await untilNothingHeld(prefill, decode);
  });

  test("a prefill whose process dies fails the decode in its stream", async () => {
    const { prefill, decode } = await startPair({ ...protocol, setupMs: 1_800_000 }, sglang);
    const body = bodyFor(prefill, "12", { stream: true });
    const first = prefill.post(path, body).catch(() => undefined);
    const second = decode.events(path, body);
    await waitFor(async () => (await decode.transfers()).importing === 1, { what: "a transfer" });
    await prefill.post("/sim/reset", {});
    const data = (await second).map((event) => event.data);
    expect(data).toEqual([expect.stringContaining("Decode transfer failed"), "[DONE]"]);
    await first;
    await untilNothingHeld(prefill, decode);
  });

  test.each(["status", "reset-mid-prefill"])("the fault %s of the prefill", async (kind) => {
    const { prefill, decode } = await startPair({ ...protocol, timeoutMs: 300 }, sglang);
    await prefill.post("/sim/faults", { kind });
    const body = bodyFor(prefill, "12");
    const first = prefill.post(path, body).catch(() => undefined);
    const second = await decode.post(path, body);
    expect(second.status).toBe(500);
    await first;
    await untilNothingHeld(prefill, decode);
  });
});

test("the bootstrap server and the engine's info tell what a router must know", async () => {
  const { prefill, decode } = await startPair(protocol, sglang);
  const bootstrap = `http://127.0.0.1:${prefill.port}`;
  expect((await fetch(`${bootstrap}/health`)).status).toBe(200);
  expect(await (await fetch(`${bootstrap}/route`)).json()).toMatchObject({ dp_size: 1 });
  expect((await prefill.get("/server_info")).json).toMatchObject({
    disaggregation_mode: "prefill",
    disaggregation_bootstrap_port: prefill.port,
  });
  expect((await decode.get("/server_info")).json.disaggregation_mode).toBe("decode");
});

test("SGLang's own API and chats meet in rooms too", async () => {
  const { prefill, decode } = await startPair(protocol, sglang);
  const meet = { bootstrap_host: "127.0.0.1", bootstrap_port: prefill.port };
  const native = { text: longPrompt, sampling_params: { max_new_tokens: 4 }, ...meet, bootstrap_room: 1 };
  const chat = {
    messages: [{ role: "user", content: longPrompt }],
    max_tokens: 4,
    stream: true,
    ...meet,
    bootstrap_room: 2,
  };
  const [, generated] = await Promise.all([prefill.post("/generate", native), decode.post("/generate", native)]);
  expect(at(generated.json, "meta_info", "completion_tokens")).toBe(4);
  const [drained, reported] = await Promise.all([
    prefill.events("/v1/chat/completions", chat),
    decode.events("/v1/chat/completions", chat),
  ]);
  expect(reported.at(-1)?.data).toBe("[DONE]");
  expect(reported.length).toBeGreaterThan(drained.length);
  await untilNothingHeld(prefill, decode);
});
