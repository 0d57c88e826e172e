import { fileURLToPath } from "node:url";
import type { Scenario } from "@espalier/simulator";
import { expect, test } from "vitest";
import type { KneeJob } from "../../src/simulate/run-job.ts";
import { runJob } from "../../src/simulate/run-job.ts";
import { loadScenario } from "../../src/simulate/simulated-scenario.ts";
import { temporaryFile } from "../temporary.ts";
import { jobOf } from "./fake-outcome.ts";

const support = fileURLToPath(new URL("../../../../examples/scenarios/support.json", import.meta.url));

const fleet = (engines = 2): string =>
  temporaryFile(
    "fleet.json",
    JSON.stringify({ engines, routers: 1, preset: "smg-generic", parameters: { blockCount: 4_096 } }),
  );

const source = (name: string | undefined, trace?: string) => ({ name, trace, format: undefined, fleet: fleet() });

test("a run ends with its row, its series, and progress that ends at 1", async () => {
  const job = jobOf({ source: source("rag"), engines: 2, routers: 2, links: "delays", requests: 40 });
  const shares: number[] = [];
  const { row, ttft, load, cached, phases } = await runJob(job, await loadScenario(job.source), (share) =>
    shares.push(share),
  );
  expect(row).toMatchObject({
    scenario: "rag",
    policy: "least_work",
    routers: 2,
    engines: 2,
    sharing: "mesh",
    seed: 1,
  });
  expect(row).toMatchObject({
    requests: 40,
    errors: 0,
    links: "delays",
    bounds: { infinite_cache: expect.any(Number) },
  });
  expect(row).not.toHaveProperty("load");
  expect(ttft.length).toBeGreaterThan(10);
  expect([load.length > 1, cached.length > 1]).toEqual([true, true]);
  expect(phases).toBeUndefined();
  expect(shares.at(-1)).toBe(1);
  expect(shares).toEqual([...shares].sort((one, other) => one - other));
});

test("the same job gives the same row, but for the time it took", async () => {
  const job = jobOf({ source: source("rag"), engines: 2, links: "delays", requests: 25, load: 0.7, scale: 2 });
  const rows = [1, 2].map(async () => {
    const { row } = await runJob(job, await loadScenario(job.source), () => {});
    const { wall_s, realtime_factor, ...same } = row;
    expect([wall_s! > 0, realtime_factor! > 0]).toEqual([true, true]);
    return same;
  });
  const [one, other] = await Promise.all(rows);
  expect(one).toEqual(other);
  expect(one?.load).toBe(0.7);
});

test("a variant's parameters reach its engines", async () => {
  const simulated = await loadScenario({ ...source("rag"), fleet: undefined });
  const scenario: Scenario = { ...simulated.scenario, variants: [{ name: "slow", parameters: { stepBaseMs: 2_000 } }] };
  const run = async (variant: string | undefined) =>
    (await runJob(jobOf({ variant, engines: 2, links: "delays", requests: 5 }), { ...simulated, scenario }, () => {}))
      .row;
  const [usual, slow] = [await run(undefined), await run("slow")];
  expect([usual.variant, slow.variant]).toEqual([undefined, "slow"]);
  expect(slow.itl_mean_s).toBeGreaterThan(1.9);
  expect(usual.itl_mean_s).toBeLessThan(0.2);
});

test("a trace of one's own is replayed", async () => {
  const rows = Array.from({ length: 30 }, (_, at) =>
    JSON.stringify({ timestamp: at * 100, input_length: 1_024, output_length: 4, hash_ids: [0, at % 3] }),
  );
  const own = source(undefined, temporaryFile("mine.jsonl", `${rows.join("\n")}\n`));
  const simulated = await loadScenario(own);
  expect(simulated.scenario.fleet.engines).toBe(2);
  const job = jobOf({ source: own, engines: 2, routers: 1, sharing: "oracle", links: "delays" });
  const { row } = await runJob(job, simulated, () => {});
  expect(row).toMatchObject({ scenario: "mine.jsonl", requests: 30, errors: 0 });
  expect(row.cached_share).toBeGreaterThan(0.5);
});

test("a scenario of one's own is a file, which is read where it is named", async () => {
  const own = { name: support, trace: undefined, format: undefined, fleet: undefined };
  const job = jobOf({ source: own, engines: 2, routers: 1, sharing: "mesh", links: "delays", durationS: 20 });
  const { row } = await runJob(job, await loadScenario(job.source), () => {});
  expect(row).toMatchObject({ scenario: "support", errors: 0 });
  expect(row.requests).toBeGreaterThan(30);
  await expect(loadScenario({ ...own, name: "none.json" })).rejects.toMatchObject({ code: "config_unreadable" });
});

test("without a fleet, a trace is served by the one that replays have", async () => {
  const trace = temporaryFile("mine.jsonl", '{"timestamp":0,"input_length":512,"output_length":2,"hash_ids":[1]}\n');
  const { scenario } = await loadScenario({ name: undefined, trace, format: undefined, fleet: undefined });
  expect(scenario.fleet).toMatchObject({ engines: 8, routers: 1, preset: "h100-32b-tp2" });
});

const kneeJob = (durationS: number): KneeJob => {
  const {
    load: _load,
    scale: _scale,
    ...job
  } = jobOf({ source: source("rag"), routers: 1, sharing: "oracle", links: "delays" });
  return { ...job, kind: "knee", durationS };
};

test("the knee of a fleet: it sustains that scale, and no much larger one", async () => {
  const job = kneeJob(40);
  const shares: number[] = [];
  const simulated = await loadScenario(job.source);
  const knee = await runJob(job, simulated, (share) => shares.push(share));
  expect(knee.position).toBe("between");
  expect(knee.relativeError).toBeLessThan(0.05);
  expect(knee.runs.find(({ scale }) => scale === knee.scale)?.isSustained).toBe(true);
  expect(shares.at(-1)).toBe(1);
  expect(Math.max(...shares)).toBeLessThanOrEqual(1);
});

test("a fleet whose knee is out of reach is an error", async () => {
  const simulated = await loadScenario(source("rag"));
  const { fleet: own } = simulated.scenario;
  // Nothing is answered within the 20 s in which requests are sent.
  const slow = { ...own, parameters: { ...own.parameters, stepBaseMs: 1_000 } };
  const run = runJob(kneeJob(20), { ...simulated, scenario: { ...simulated.scenario, fleet: slow } }, () => {});
  await expect(run).rejects.toThrow(
    "at 0.05 of the published rate the fleet does not keep up or misses its objectives: no knee is found",
  );
});

test("a plugin's policy decides, and one that throws ends its run", async () => {
  const plugin = (score: string): string =>
    temporaryFile(
      "plugin.mjs",
      `export const policies = { mine: { terms: [{ scorer: { name: "s", score(decision, out) { ${score} } }, weight: 1 }] } };`,
    );
  const run = async (score: string) => {
    const job = jobOf({
      source: { ...source("rag"), plugins: [plugin(score)] },
      ...{ policy: "mine", engines: 2, links: "delays", requests: 10 },
    });
    return (await runJob(job, await loadScenario(job.source), () => {})).row;
  };
  expect(await run("out.fill(0);")).toMatchObject({ policy: "mine", requests: 10, errors: 0 });
  // The trial of a plugin has other targets than a fleet.
  const later = 'if (decision.candidates.target[0] < 100) throw new Error("it broke later"); out.fill(0);';
  await expect(run(later)).rejects.toThrow("it broke later");
});
