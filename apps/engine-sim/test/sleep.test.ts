import { waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import { at, chunksOf, parseEvents, startSim, type TestSim } from "./sim-client.ts";

/** The lines of `vllm:engine_sleep_state` that are 1. */
async function sleepStates(sim: TestSim): Promise<string[]> {
  const page = (await sim.get("/metrics")).text;
  return [...page.matchAll(/^vllm:engine_sleep_state\{.*sleep_state="(\w+)"\} 1.0$/gm)].map(([, state]) => state!);
}

const isSleeping = async (sim: TestSim): Promise<unknown> => (await sim.get("/is_sleeping")).json.is_sleeping;

const ask = { model: "tiny", prompt: "a b c d", max_tokens: 4 };

test.each([
  [0, []],
  [1, ["weights_offloaded"]],
  [2, ["discard_all"]],
] as const)(
  "at sleep level %i an engine says it is healthy, and requests wait until it is awake",
  async (level, states) => {
    const sim = await startSim();
    expect([await sleepStates(sim), await isSleeping(sim)]).toEqual([["awake"], false]);
    expect((await sim.post(`/sleep?level=${level}`, {})).json).toEqual({ status: "sleeping", level });
    expect([await sleepStates(sim), await isSleeping(sim)]).toEqual([states, true]);
    expect((await sim.get("/health")).status).toBe(200);
    let answered = false;
    const answer = sim.post("/v1/completions", ask).then((got) => {
      answered = true;
      return got;
    });
    await waitFor(async () => (await sim.state()).stats.waiting === 1, { what: "the request in the engine" });
    const before = (await sim.state()).engineMs;
    await waitFor(async () => (await sim.state()).engineMs > before + 10_000, { what: "ten seconds of engine time" });
    expect(answered).toBe(false);
    expect((await sim.post("/wake_up", {})).json).toEqual({ status: "awake", tags: null });
    expect((await answer).status).toBe(200);
    expect([await sleepStates(sim), await isSleeping(sim)]).toEqual([["awake"], false]);
  },
);

test("an engine is awake once all memory pools are back", async () => {
  const sim = await startSim();
  await sim.post("/sleep?level=2", {});
  expect((await sim.post("/wake_up?tags=weights", {})).json).toEqual({ status: "sleeping", tags: ["weights"] });
  expect(await sleepStates(sim)).toEqual(["discard_all"]);
  expect((await sim.post("/wake_up?tags=kv_cache", {})).json).toEqual({ status: "awake", tags: ["kv_cache"] });
  expect(await sleepStates(sim)).toEqual(["awake"]);
});

test("sleep ends what an engine computes with the reason abort", async () => {
  const sim = await startSim({ speed: 1 });
  const long = { ...ask, max_tokens: 4_000, ignore_eos: true };
  const stream = sim.post("/v1/completions", { ...long, stream: true });
  const whole = sim.post("/v1/completions", long);
  await waitFor(async () => (await sim.state()).stats.running === 2, { what: "two running requests" });
  await sim.post("/sleep", {});
  const chunks = chunksOf(parseEvents((await stream).text));
  expect(at(chunks.at(-1), "choices", 0, "finish_reason")).toBe("abort");
  expect(at((await whole).json, "choices", 0, "finish_reason")).toBe("abort");
});

test("an engine that was restarted is awake", async () => {
  const sim = await startSim();
  await sim.post("/sleep", {});
  await sim.post("/sim/reset", {});
  expect(await sleepStates(sim)).toEqual(["awake"]);
  expect((await sim.post("/v1/completions", ask)).status).toBe(200);
});

test.each(["level=3", "level=x", "mode=keep"])("sleep refuses %s", async (query) => {
  const sim = await startSim();
  expect((await sim.post(`/sleep?${query}`, {})).status).toBe(400);
});
