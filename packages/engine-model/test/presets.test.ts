import { createEngine, enginePresets, presetNames } from "@espalier/engine-model";
import { describe, expect, test } from "vitest";
import { upFrom } from "./harness.ts";

const numbers = [
  "blockSize",
  "blockCount",
  "maxBatchedTokens",
  "maxRunning",
  "maxModelLength",
  "stepBaseMs",
  "prefillMsPerToken",
  "attentionMsPerTokenPair",
  "decodeMsPerSequence",
  "decodeMsPerContextToken",
] as const;

describe.each(presetNames)("%s", (name) => {
  const { parameters, sources, description } = enginePresets[name];

  test("every parameter has a source", () => {
    expect(description).not.toBe("");
    for (const key of Object.keys(parameters)) expect(sources[key], key).toBeTruthy();
    expect(sources.kvBytesPerToken).toBeTruthy();
    for (const key of numbers) expect(parameters[key]).toBeGreaterThanOrEqual(0);
  });

  test("it runs, and a long prompt takes about as long as its rate says", () => {
    let firstTokenMs = 0;
    const engine = createEngine({
      parameters,
      hashSeed: 1,
      observer: {
        finished: (report) => {
          firstTokenMs = report.firstTokenMs;
        },
      },
    });
    const length = 8_000;
    const promptTokens = Uint32Array.from(upFrom(1, length));
    engine.submit({ id: "a", promptTokens, outputTokens: 1, outputToken: () => 0 }, 0);
    engine.advanceTo(1e6);
    const { prefillMsPerToken, attentionMsPerTokenPair, stepBaseMs, maxBatchedTokens } = parameters;
    const steps = Math.ceil(length / maxBatchedTokens);
    const wanted =
      steps * stepBaseMs + length * prefillMsPerToken + attentionMsPerTokenPair * ((length * (length + 1)) / 2);
    expect(firstTokenMs).toBeCloseTo(wanted, 3);
  });
});

/** What the sources of the presets derive, done again: bytes free for KV over bytes per token, and peaks of the chips. */
test.each([
  // name, GB free for KV, layers, KV heads x head size, bytes per value
  ["a10g-7b", 24 * 0.9 - 15.2 - 3, 28, 4 * 128, 2],
  ["h100-32b-tp2", 2 * 80 * 0.9 - 65.5 - 6, 64, 8 * 128, 2],
  ["h100-70b-tp4", 4 * 80 * 0.9 - 141 - 12, 80, 8 * 128, 2],
  ["b200-moe", 4 * 180 * 0.85 - 235 - 74, 94, 4 * 128, 1],
] as const)("%s: the KV capacity is within 2 % of the arithmetic", (name, freeGb, layers, width, bytes) => {
  const { blockCount, blockSize } = enginePresets[name].parameters;
  expect(enginePresets[name].kvBytesPerToken).toBe(layers * 2 * width * bytes);
  const tokens = (freeGb * 1e9) / (layers * 2 * width * bytes);
  expect(Math.abs(blockCount * blockSize - tokens) / tokens).toBeLessThan(0.02);
});

test.each([
  // name, active parameters, effective TFLOPS, layers x attention width
  ["a10g-7b", 7.6e9, 70 * 0.6, 28 * 3_584, 70 * 0.6],
  ["h100-32b-tp2", 32.5e9, 2 * 989 * 0.5, 64 * 5_120, 2 * 989 * 0.5],
  ["h100-70b-tp4", 70.6e9, 4 * 989 * 0.45, 80 * 8_192, 4 * 989 * 0.45],
  ["b200-moe", 22e9, 4 * 4_500 * 0.35, 94 * 64 * 128, 4 * 2_250 * 0.35],
] as const)("%s: prefill times follow from the arithmetic", (name, active, tflops, width, attentionTflops) => {
  const { prefillMsPerToken, attentionMsPerTokenPair } = enginePresets[name].parameters;
  expect(prefillMsPerToken / ((2 * active * 1e3) / (tflops * 1e12))).toBeCloseTo(1, 1.5);
  expect(attentionMsPerTokenPair / ((4 * width * 1e3) / (attentionTflops * 1e12))).toBeCloseTo(1, 1.5);
});

test("smg-generic is what was given: 8,000 tokens/s, 6 ms + 0.35 ms x batch, 256 places, 524,288 tokens of KV", () => {
  const { parameters } = enginePresets["smg-generic"];
  expect(1_000 / parameters.prefillMsPerToken).toBe(8_000);
  expect(parameters.blockCount * parameters.blockSize).toBe(524_288);
  expect(parameters).toMatchObject({ stepBaseMs: 6, decodeMsPerSequence: 0.35, maxRunning: 256, blockSize: 16 });
});

test("names are stable", () => {
  expect(presetNames).toEqual(["a10g-7b", "h100-32b-tp2", "h100-70b-tp4", "b200-moe", "smg-generic"]);
});
