import { createSeededRandom } from "@espalier/core";
import { createEngine, type EngineRequest, enginePresets } from "@espalier/engine-model";
import { describe, expect, test } from "vitest";

/** Chats on shared system prompts: about 2,000 tokens in, of which 1,000 of 200 kinds, and 50 to 300 out. */
function workload(requests: number): EngineRequest[] {
  const random = createSeededRandom(3);
  const tokens = (length: number): Uint32Array => Uint32Array.from({ length }, () => random.integer(150_000));
  const shared = Array.from({ length: 200 }, () => tokens(1_000));
  return Array.from({ length: requests }, (_, at) => {
    const own = tokens(500 + random.integer(1_000));
    const promptTokens = new Uint32Array(1_000 + own.length);
    promptTokens.set(shared[random.integer(200)]!);
    promptTokens.set(own, 1_000);
    return {
      id: `r${at}`,
      promptTokens,
      outputTokens: 50 + random.integer(250),
      outputToken: (index) => (at * 31 + index) % 150_000,
    };
  });
}

describe("one core simulates more than a million tokens a second", () => {
  test.each(["vllm", "sglang"] as const)("%s, with tokens, reports and events observed", (flavour) => {
    const requests = workload(1_500);
    let tokens = 0;
    let cached = 0;
    let events = 0;
    let totalTokens = 0;
    const engine = createEngine({
      parameters: { ...enginePresets["smg-generic"].parameters, flavour },
      hashSeed: 1,
      observer: {
        token: () => void totalTokens++,
        events: (batch) => {
          events += batch.length;
        },
        finished(report) {
          tokens += report.promptTokens + report.outputTokens;
          cached += report.cachedTokens;
        },
      },
    });
    const random = createSeededRandom(4);
    // Of the processor, not of the clock: what else a busy machine does does not count.
    const before = process.cpuUsage();
    let atMs = 0;
    for (const request of requests) {
      // About 80 % of what the engine can take.
      atMs += -Math.log(1 - random.float()) * 300;
      engine.submit(request, atMs);
    }
    engine.advanceTo(1e9);
    const { user, system } = process.cpuUsage(before);
    const seconds = (user + system) / 1e6;
    const rate = tokens / seconds;
    process.stdout.write(`${flavour}: ${(rate / 1e6).toFixed(1)} M tokens/s, ${(cached / tokens).toFixed(2)} cached\n`);

    expect(engine.stats().finished).toBe(requests.length);
    expect(totalTokens).toBeGreaterThan(200_000);
    expect(events).toBeGreaterThan(3_000);
    expect(cached / tokens).toBeGreaterThan(0.2);
    expect(rate).toBeGreaterThan(1e6);
  });
});
