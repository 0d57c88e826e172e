import { envoyConfig, standardEnvoyLimits } from "espalier-router";
import { expect, test } from "vitest";
import { arrangementNames, withoutPicker } from "../src/pickers/arrangements.ts";
import { pickersParams, pickersPlan, pickersReport, pickersTable } from "../src/suites/endpoint-picker.ts";
import { readParams } from "../src/support/params.ts";

const planOf = (args: readonly string[]) => pickersPlan(readParams(pickersParams, args));

test("Envoy without a picker has the same configuration, without the filter and its cluster", () => {
  const host = "127.0.0.1";
  const config = envoyConfig({
    listen: { host, port: 0 },
    admin: { host, port: 0 },
    pickers: [{ host, port: 1, healthPort: 2 }],
    engines: [{ host, port: 3 }],
    requestBody: "full-duplex",
    answersThroughPicker: true,
    limits: standardEnvoyLimits,
  });
  const bare = withoutPicker(config);
  expect(bare.static_resources.clusters).toEqual(config.static_resources.clusters.slice(1));
  const text = JSON.stringify(bare);
  expect(text).not.toContain("ext_proc");
  expect(text).toContain("envoy.filters.http.router");
  expect(text).toContain("override_host");
});

test("a quick run leaves out what has to be built; wrong flags are refused", () => {
  expect(planOf([]).names).toEqual([...arrangementNames, "fleet"]);
  expect(readParams(pickersParams, []).runs).toBe(3);
  const quick = planOf(["--quick"]);
  expect(quick.names).toEqual([...arrangementNames.filter((name) => !name.startsWith("llm-d")), "fleet"]);
  expect(readParams(pickersParams, ["--quick"]).runs).toBe(1);
  expect(planOf(["--only", "envoy,llm-d"]).names).toEqual(["envoy", "llm-d"]);
  expect(planOf(["--only", "envoy,llm-d"]).fleet).toBeUndefined();
  expect(() => planOf(["--only", "envoi"])).toThrow('--only: there is no "envoi"');
  expect(() => planOf(["--runs", "0"])).toThrow("--runs must be a whole number");
  expect(() => planOf(["--minutes", "no"])).toThrow("--minutes must be a number");
});

const shares = { "4k": { picker: { system: 0.5, load: 0.9, engine: 0.2 } } };
const runWith = (figure: number) => ({
  figures: {
    direct: { latency_4k_p50_ms: 0.1 },
    espalier: { picker_cpu_us_4k: figure, picker_cpu_us_4k_headers_only: figure / 2 },
    envoy: { envoy_cpu_us_4k: figure / 4 },
  },
  shares,
});

test("figures are medians over the runs, with their extremes, and each arrangement is a row", () => {
  const params = { pinned: true, arrangements: "envoy,picker,picker-headers-only" };
  const plan = { router: [1], others: [0] };
  const report = pickersReport([runWith(200), runWith(400), runWith(100)], params, plan, ["llm-d's picker is missing"]);
  expect(report.params.runs).toBe(3);
  expect(report.metrics).toEqual({ picker_cpu_us_4k: 200, picker_cpu_us_4k_headers_only: 100 });
  expect(report.baselines).toEqual({ direct: { latency_4k_p50_ms: 0.1 }, envoy: { envoy_cpu_us_4k: 50 } });
  expect(report.spread.espalier?.picker_cpu_us_4k).toEqual({ min: 100, max: 400 });
  expect(report.warnings).toEqual(["llm-d's picker is missing", expect.stringMatching(/^4k at picker: .*saturated/)]);
  const table = pickersTable(report);
  expect(table).toMatch(/^picker +- +200 \(100 \.\. 400\)/m);
  expect(table).toMatch(/^picker-headers-only +- +100 \(50 \.\. 200\)/m);
  expect(table).toMatch(/^envoy +50 \(25 \.\. 100\)/m);
});
