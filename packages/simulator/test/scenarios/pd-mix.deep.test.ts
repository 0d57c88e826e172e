/** `pd-mix`: what its clients ask for, and that the threshold which follows the load is as good as a fixed one. */
import { describe, expect, test } from "vitest";
import { createRow, type SimulateRow } from "../../src/measure/rows.ts";
import type { RunOptions } from "../../src/run.ts";
import { scenario } from "../../src/scenarios/catalogue.ts";
import { simulate } from "../../src/simulate.ts";
import { recordRun, sharedBlocks } from "../clients/recorded-run.ts";

const output = { least: 100, most: 1_000 };
const longIn = scenario("pd-mix-long-in");

describe.each([
  ["pd-mix", { inputTokens: { least: 1_000, most: 100_000 }, outputTokens: output }, 2.2],
  ["pd-mix-long-in", { inputTokens: { least: 10_000, most: 100_000 }, outputTokens: { least: 100, most: 200 } }, 1.1],
  ["pd-mix-long-out", { inputTokens: { least: 1_000, most: 10_000 }, outputTokens: { least: 500, most: 1_000 } }, 11.5],
])("%s", (name, lengths, ratePerS) => {
  const one = scenario(name);
  const workload = one.createWorkload({ seed: 3, engines: 8, kvTokens: 400_000, scale: 1, durationS: 400 });
  const { sent } = recordRun(workload, { answerMs: 100 });

  test("lengths are log-uniform between their bounds, and nothing is shared", () => {
    const { inputTokens, outputTokens } = lengths;
    for (const { promptTokens, outputTokens: output } of sent) {
      expect(promptTokens).toBeGreaterThanOrEqual(inputTokens.least);
      expect(promptTokens).toBeLessThanOrEqual(inputTokens.most);
      expect(output).toBeGreaterThanOrEqual(outputTokens.least);
      expect(output).toBeLessThanOrEqual(outputTokens.most);
    }
    const middle = Math.sqrt(inputTokens.least * inputTokens.most);
    const below = sent.filter(({ promptTokens }) => promptTokens < middle).length / sent.length;
    expect(Math.abs(below - 0.5)).toBeLessThan(0.1);
    expect(sharedBlocks(sent[0]!.chain, sent[1]!.chain)).toBe(0);
    expect(Math.abs(sent.length / 400 / ratePerS - 1)).toBeLessThan(0.15);
  });

  test("each threshold stands at each load, beside engines that all do everything", () => {
    // Two loads of seven thresholds, eight splits by role, the balance, and engines that each do everything.
    const byThreshold = one.variants.filter((variant) => !variant.name.startsWith("100k-"));
    expect(byThreshold).toHaveLength(2 * (7 + 8 + 2));
    expect(one.split!.roles).toHaveLength(one.fleet.engines);
    expect(one.split!.roles.map((role) => role[0]).join("")).toBe("ppddbbbb");
    expect(one.variants.find((variant) => variant.name === "8192-0.5")).toEqual({
      ...{ name: "8192-0.5", scale: 0.5, splitTokens: 8_192 },
    });
    expect(one.variants.find((variant) => variant.name === "dynamic-0.85")).toEqual({
      ...{ name: "dynamic-0.85", scale: 0.85 },
    });
  });

  test("fixed numbers of engines compute prompts, beside the number that is applied", () => {
    const rolesOf = (variant: string) => one.variants.find((each) => each.name === variant)!.roles;
    expect(
      rolesOf("5-to-3-0.5")!
        .map((role) => role[0])
        .join(""),
    ).toBe("pppppddd");
    expect(
      rolesOf("flexible-0.5")!
        .map((role) => role[0])
        .join(""),
    ).toBe("bbbbbbbb");
    expect(one.variants.find((variant) => variant.name === "applied-0.85")).toEqual({
      ...{ name: "applied-0.85", scale: 0.85, roles: [], appliesBalance: true },
    });
  });
});

/** Runs of seconds, on machines that do other things beside. */
const timeoutMs = 120_000;

async function run(variant: string): Promise<SimulateRow> {
  const { scale = 1 } = longIn.variants.find(({ name }) => name === variant)!;
  const options: RunOptions = {
    ...{ scenario: longIn, variant, policy: "least_work", routers: 2, engines: 8 },
    ...{ sharing: "mesh", links: "delays", seed: 1, scale, durationS: 100 },
  };
  return createRow(await simulate(options, () => 0), options);
}

test(
  "answers are complete earlier than with any fixed threshold, and all of them come",
  async () => {
    const [dynamic, always, longest, never] = [
      await run("dynamic-0.85"),
      await run("always-0.85"),
      await run("16384-0.85"),
      await run("never-0.85"),
    ];
    for (const fixed of [always, longest, never]) {
      expect(dynamic.e2e_mean_s!).toBeLessThan(1.02 * fixed.e2e_mean_s!);
      expect(dynamic.ttft_mean_s!).toBeLessThan(1.02 * fixed.ttft_mean_s!);
    }
    expect([dynamic, always, longest, never].map(({ errors }) => errors)).toEqual([0, 0, 0, 0]);
    expect([always.split_share, never.split_share]).toEqual([1, undefined]);
    expect(dynamic.split_share!).toBeGreaterThan(0.1);
    expect(dynamic.split_share!).toBeLessThan(0.9);
  },
  timeoutMs,
);

test(
  "with one side for each engine, answers are complete earlier than with both for all",
  async () => {
    const [applied, flexible] = [await run("applied-0.85"), await run("flexible-0.85")];
    expect(applied.e2e_mean_s!).toBeLessThan(flexible.e2e_mean_s!);
    expect(applied.split_share!).toBeGreaterThan(flexible.split_share!);
    expect([applied.errors, flexible.errors]).toEqual([0, 0]);
  },
  timeoutMs,
);
