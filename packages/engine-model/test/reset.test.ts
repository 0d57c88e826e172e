import { describe, expect, test } from "vitest";
import { createHarness, upFrom } from "./harness.ts";

describe("resetPrefixCache", () => {
  test.each(["vllm", "sglang"] as const)("%s: refused while requests run", (flavour) => {
    const harness = createHarness({ flavour });
    harness.run("before", upFrom(1, 9));
    harness.submit("a", upFrom(1, 9), 3);
    harness.engine.advanceTo(harness.nowMs());
    expect(harness.engine.resetPrefixCache(harness.nowMs())).toBe(false);
    harness.settle();
    expect(harness.report("a").cachedTokens).toBe(8);
    expect(harness.engine.resetPrefixCache(harness.nowMs())).toBe(true);
    expect(harness.engine.stats()).toMatchObject({ cachedBlocks: 0, freeBlocks: 16 });
    expect(harness.run("after", upFrom(1, 9)).cachedTokens).toBe(0);
  });

  test("vLLM allows it while requests only wait, SGLang does not", () => {
    for (const [flavour, allowed] of [
      ["vllm", true],
      ["sglang", false],
    ] as const) {
      const harness = createHarness({ flavour });
      harness.submit("a", upFrom(1, 9));
      expect(harness.engine.resetPrefixCache(0)).toBe(allowed);
    }
  });

  test("vLLM announces it with its next step, before what that step stores", () => {
    const harness = createHarness();
    harness.run("a", upFrom(1, 9));
    harness.engine.resetPrefixCache(harness.nowMs());
    harness.idle(50);
    expect(harness.batches.length).toBe(1);
    harness.run("b", upFrom(1, 9));
    expect(harness.batches[1]!.events.map(({ type }) => type)).toEqual(["cleared", "stored"]);
  });

  test("SGLang announces it at once, and once at its start", () => {
    const harness = createHarness({ flavour: "sglang" });
    harness.engine.advanceTo(0);
    expect(harness.batches).toEqual([{ timeMs: 0, events: [{ type: "cleared" }] }]);
    harness.run("a", upFrom(1, 9));
    const before = harness.batches.length;
    harness.engine.resetPrefixCache(harness.nowMs());
    expect(harness.batches.slice(before)).toEqual([{ timeMs: harness.nowMs(), events: [{ type: "cleared" }] }]);
  });
});
