import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { envoyProgram } from "../integration/envoy-program.ts";

const hasCompiler = spawnSync("cc", ["--version"]).status === 0;
if (!hasCompiler) process.stderr.write("NOT RUN: npm run bench -- endpoint-picker; cc is not installed\n");
const envoy = envoyProgram("npm run bench -- endpoint-picker");
const program = fileURLToPath(new URL("../../bench/src/main.ts", import.meta.url));

describe.skipIf(envoy === undefined || !hasCompiler)("npm run bench -- endpoint-picker", () => {
  test("a quick run prints one JSON object with the fixed keys, and its progress elsewhere", () => {
    const args = [program, "endpoint-picker", "--quick", "--duration", "0.1", "--envoy-bin", envoy!, "--json"];
    const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
    expect([status, stderr.includes("error:")], stderr).toEqual([0, false]);
    const { name, params, metrics, baselines, spread } = JSON.parse(stdout);
    expect(name).toBe("endpoint-picker");
    expect(params).toMatchObject({ runs: 1, node: process.versions.node });
    const latencies = ["4k", "48k"].flatMap((size) => [`added_${size}_p50_ms`, `added_${size}_p99_ms`]);
    const cpu = ["picker_cpu_us_4k", "picker_cpu_us_48k", "envoy_cpu_us_4k", "envoy_cpu_us_48k"];
    for (const suffix of ["", "_answers_hidden", "_buffered", "_headers_only"]) {
      for (const figure of [...cpu, ...latencies].map((each) => each + suffix)) {
        expect(metrics[figure], figure).toSatisfy(Number.isFinite);
        expect(spread.espalier[figure], figure).toMatchObject({ min: metrics[figure], max: metrics[figure] });
      }
      expect(metrics[`rps_4k${suffix}`]).toBeGreaterThan(0);
    }
    expect(metrics.same_engine_share).toBeGreaterThan(0);
    expect(metrics.failed_after_kill).toBeGreaterThanOrEqual(0);
    expect(metrics.streams_cut_after_kill).toBeGreaterThanOrEqual(0);
    expect(metrics.failed_after_kill_answers_hidden).toBeGreaterThanOrEqual(0);
    expect(metrics.picker_cpu_us_4k_alone).toSatisfy(Number.isFinite);
    for (const figure of ["cpu_us_4k", "cpu_us_48k", ...latencies]) {
      expect(baselines.proxy[figure], figure).toSatisfy(Number.isFinite);
      expect(baselines.envoy[figure], figure).toSatisfy(Number.isFinite);
    }
    expect(baselines.direct.latency_4k_p50_ms).toBeGreaterThan(0);
    expect(stderr).toContain("run 1 of 1: picker-headers-only: ");
  });
});
