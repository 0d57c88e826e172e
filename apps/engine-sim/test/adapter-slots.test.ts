import { waitFor } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { at, modelsOf, openRequest, startSim, type TestSim, untilIdle } from "./sim-client.ts";

const completions = "/v1/completions";
const prompt = "x".repeat(400);

interface Use {
  readonly max: string;
  readonly running: string;
  readonly waiting: string;
}

/** The newest sample of `vllm:lora_requests_info`. */
async function use(sim: TestSim): Promise<Use | undefined> {
  const page = (await sim.get("/metrics")).text;
  const pattern =
    /^vllm:lora_requests_info\{max_lora="(\d+)",running_lora_adapters="(.*)",waiting_lora_adapters="(.*)"\} ([\d.]+)$/gm;
  const samples = [...page.matchAll(pattern)].sort((one, other) => Number(one[4]) - Number(other[4]));
  const newest = samples.at(-1);
  return newest && { max: newest[1]!, running: newest[2]!, waiting: newest[3]! };
}

describe("slots", () => {
  test("requests for one adapter too many wait, others pass them, and the metrics name both", async () => {
    const adapters = ["a", "b", "c"];
    const sim = await startSim({ adapters, speed: 20, parameters: { adapterSlots: 2, blockSize: 16 } });
    const long = { prompt, max_tokens: 20_000, stream: true };
    const open = adapters.map((model) => openRequest(sim.url + completions, { ...long, model }));
    await waitFor(async () => (await use(sim))?.waiting === "c", { what: "an adapter that waits" });
    expect(await use(sim)).toEqual({ max: "2", running: "a,b", waiting: "c" });
    // The model itself, and an adapter that runs, need no slot.
    for (const model of ["tiny", "a"]) {
      expect((await sim.post(completions, { prompt, max_tokens: 1, model })).status).toBe(200);
    }
    open[0]!.destroy();
    await waitFor(async () => (await use(sim))?.running === "b,c", { what: "the freed slot" });
    for (const request of open) request.destroy();
    expect((await untilIdle(sim)).stats).toMatchObject({ adapterLoads: 3 });
  });

  test("loading takes its time, once for an adapter that stays", async () => {
    const sim = await startSim({ adapters: ["a", "b"], parameters: { adapterSlots: 1, adapterLoadMs: 60_000 } });
    const loads: unknown[] = [];
    for (const model of ["a", "a", "b", "a"]) {
      const before = (await sim.state()).stats;
      await sim.post(completions, { prompt, max_tokens: 1, model });
      const after = (await sim.state()).stats;
      loads.push(after.adapterLoads! - before.adapterLoads!);
      expect(after.busyMs! - before.busyMs! > 60_000).toBe(loads.at(-1) === 1);
    }
    expect(loads).toEqual([1, 0, 1, 1]);
  });
});

describe("adapters that come and go", () => {
  const load = (sim: TestSim, body: object) => sim.post("/v1/load_lora_adapter", body);
  const unload = (sim: TestSim, body: object) => sim.post("/v1/unload_lora_adapter", body);

  test("a loaded adapter is a model until it is unloaded", async () => {
    const sim = await startSim({ adapters: ["first"] });
    const asked = { prompt, max_tokens: 1, model: "second" };
    expect((await sim.post(completions, asked)).status).toBe(404);
    const answer = await load(sim, { lora_name: "second", lora_path: "/adapters/second" });
    expect([answer.status, answer.text]).toEqual([200, "Success: LoRA adapter 'second' added successfully."]);
    expect(await modelsOf(sim)).toEqual(["tiny", "first", "second"]);
    expect((await sim.post(completions, asked)).json.model).toBe("second");
    const gone = await unload(sim, { lora_name: "second" });
    expect([gone.status, gone.text]).toEqual([200, "Success: LoRA adapter 'second' removed successfully."]);
    expect(await modelsOf(sim)).toEqual(["tiny", "first"]);
    expect((await sim.post(completions, asked)).status).toBe(404);
  });

  test("a restarted engine knows the adapters of its start", async () => {
    const sim = await startSim({ adapters: ["first"] });
    await load(sim, { lora_name: "second", lora_path: "/adapters/second" });
    await unload(sim, { lora_name: "first" });
    await sim.post("/sim/reset", "");
    expect((await sim.state()).adapters).toEqual(["first"]);
  });

  test.each([
    ["no name", { lora_path: "/p" }, 400, "lora_name"],
    ["no path", { lora_name: "x" }, 400, "lora_path"],
    ["one that is there", { lora_name: "first", lora_path: "/p" }, 400, "already been loaded"],
    ["the model's own name", { lora_name: "tiny", lora_path: "/p" }, 400, "model itself"],
    ["a name that is no text", { lora_name: 3, lora_path: "/p" }, 400, "a string"],
  ])("loading refuses %s", async (_, body, status, words) => {
    const sim = await startSim({ adapters: ["first"] });
    const answer = await load(sim, body);
    expect(answer.status).toBe(status);
    expect(at(answer.json, "error", "message")).toContain(words);
    expect(await modelsOf(sim)).toEqual(["tiny", "first"]);
  });

  test("one that is there may be loaded in place", async () => {
    const sim = await startSim({ adapters: ["first"] });
    expect((await load(sim, { lora_name: "first", lora_path: "/p", load_inplace: true })).status).toBe(200);
    expect(await modelsOf(sim)).toEqual(["tiny", "first"]);
  });

  test("unloading needs a name that is known", async () => {
    const sim = await startSim();
    expect((await unload(sim, {})).status).toBe(400);
    expect((await unload(sim, { lora_name: "x" })).status).toBe(404);
  });

  test("there are 64 at most", async () => {
    const sim = await startSim({ adapters: Array.from({ length: 63 }, (_, number) => `a${number}`) });
    expect((await load(sim, { lora_name: "last", lora_path: "/p" })).status).toBe(200);
    const refused = await load(sim, { lora_name: "one more", lora_path: "/p" });
    expect(refused.status).toBe(400);
    expect(at(refused.json, "error", "message")).toContain("64");
  });
});
