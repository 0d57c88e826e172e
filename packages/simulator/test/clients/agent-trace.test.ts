import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { agentTraceLines } from "../../src/clients/agent-trace.ts";
import { scenario } from "../../src/scenarios/catalogue.ts";
import { infiniteCacheBound, percentile, readTraceLines, type TraceRequest } from "../../src/workload/index.ts";

const agentsTraces = scenario("agents-traces");
const shipped = new URL("../../../../examples/traces/agent-sessions.jsonl.gz", import.meta.url).pathname;

const quantiles = (values: readonly number[], percents: readonly number[]): readonly number[] => {
  const sorted = Float64Array.from(values).sort();
  return percents.map((percent) => percentile(sorted, percent));
};

/** Each within a factor of the value of the real trace. */
function expectNear(values: readonly number[], real: readonly number[], factor: number): void {
  const found = quantiles(values, [25, 50, 75, 90]);
  for (const [at, value] of found.entries()) {
    expect(value, `${found} for ${real}`).toBeGreaterThan(real[at]! / factor);
    expect(value, `${found} for ${real}`).toBeLessThan(real[at]! * factor);
  }
}

describe("200 invented sessions are like the 355 real ones of which the quantiles are", () => {
  const requests: readonly TraceRequest[] = readTraceLines("file", agentTraceLines({ sessions: 200, seed: 7 }));
  const sizes = new Map<string, number>();
  for (const { session } of requests) sizes.set(session, (sizes.get(session) ?? 0) + 1);

  test("requests per session, prompts, answers and times to think", () => {
    expectNear([...sizes.values()], [15, 43, 92, 152], 1.6);
    expectNear(
      requests.map((one) => one.inputTokens),
      [68_371, 106_546, 143_619, 240_437],
      1.6,
    );
    expectNear(
      requests.map((one) => one.outputTokens),
      [141, 222, 435, 892],
      1.4,
    );
    expectNear(
      requests.map(({ wait }) => wait!.thinkMs / 1_000),
      [6, 10, 32, 163],
      1.6,
    );
  });

  test("sessions find 96 % of their prompts in what they sent before, as real ones do", () => {
    const bound = infiniteCacheBound(requests)!;
    expect(bound).toBeGreaterThan(0.955);
    expect(bound).toBeLessThan(0.975);
  });

  test("sub-agents run beside their session", () => {
    expect(requests.some(({ wait }) => wait!.after.length > 1)).toBe(true);
  });

  test("the first sessions are the same, however many there are", () => {
    const lines = [...agentTraceLines({ sessions: 3, seed: 7 })];
    expect([...agentTraceLines({ sessions: 5, seed: 7 })].slice(0, 3)).toEqual(lines);
    expect([...agentTraceLines({ sessions: 3, seed: 8 })]).not.toEqual(lines);
  });
});

test("the shipped trace is what the generator makes: espalier simulate agents-traces --write-trace makes it anew", () => {
  const text = gunzipSync(readFileSync(shipped)).toString();
  expect(text === [...agentsTraces.syntheticTrace!()].map((line) => `${line}\n`).join("")).toBe(true);
});

test("a trace of single requests is refused", () => {
  const trace = readTraceLines("file", ['{"prompt":"x"}']);
  const options = { seed: 1, engines: 2, kvTokens: 1e6, scale: 1, trace };
  expect(() => agentsTraces.createWorkload(options)).toThrow("does not say what its requests wait for");
});

test("without a trace the scenario has the invented one", () => {
  const options = { seed: 1, engines: 2, kvTokens: 1e6, scale: 0.01, requests: 5 };
  expect(agentsTraces.createWorkload(options).expectedRequests).toBe(5);
  const [starts] = agentsTraces.variants;
  expect(starts!.createWorkload!(options).expectedRequests).toBe(5);
});
