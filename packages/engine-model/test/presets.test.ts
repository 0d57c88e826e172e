import { createEngine, enginePresets, presetNames } from "@espalier/engine-model";
import { describe, expect, test } from "vitest";
import { upFrom } from "./harness.ts";

describe.each(presetNames)("%s", (name) => {
  const { parameters } = enginePresets[name];

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
