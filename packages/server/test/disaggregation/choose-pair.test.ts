import { kvTransferProtocols } from "@espalier/core";
import { servesAlone, takesSide } from "@espalier/routing";
import { describe, expect, test } from "vitest";
import { chatBody, choosePair, splitRig } from "./split-rig.ts";

const untried = { any: new Set<string>(), prefill: new Set<string>() };
const pair = { p: ["prefill", "nixl"], d: ["decode", "nixl"] } as const;
/** So low that every long prompt is split. */
const low = { minTokens: 1_000, maxTokens: 1_000 };

describe("roles", () => {
  const engine = (role: "both" | "prefill" | "decode", protocol?: (typeof kvTransferProtocols)[number]) => ({
    role,
    kvTransfer: protocol && { protocol, host: undefined, port: undefined },
  });

  test("who serves a request alone", () => {
    expect(servesAlone({ engine: engine("both") })).toBe(true);
    expect(servesAlone({ engine: engine("decode") })).toBe(true);
    expect(servesAlone({ engine: engine("prefill") })).toBe(false);
    const alone = kvTransferProtocols.filter((protocol) => servesAlone({ engine: engine("decode", protocol) }));
    expect(alone).toEqual(["nixl", "mooncake", "shared-storage", "trtllm", "llm-d-sidecar"]);
    for (const protocol of kvTransferProtocols) {
      expect(servesAlone({ engine: engine("prefill", protocol) })).toBe(false);
      expect(servesAlone({ engine: engine("both", protocol) })).toBe(true);
    }
  });

  test("who can be a side of a pair", () => {
    for (const protocol of kvTransferProtocols) {
      const sides = (role: "both" | "prefill" | "decode") =>
        (["prefill", "decode"] as const).filter((side) => takesSide(engine(role, protocol), side));
      expect([sides("prefill"), sides("decode")]).toEqual([["prefill"], ["decode"]]);
      const takesBoth = protocol !== "sglang" && protocol !== "p2p-nccl";
      expect(sides("both")).toEqual(takesBoth ? ["prefill", "decode"] : []);
    }
    expect(takesSide(engine("both"), "decode")).toBe(false);
  });
});

describe("one engine or two", () => {
  test("two, for enough that no cache holds; one for less", async () => {
    const rig = await splitRig({ engines: pair, options: low });
    const chosen = choosePair(rig.context, rig.plan(), untried);
    expect(chosen).toMatchObject({
      ...{ reason: "threshold", thresholdTokens: 1_000, protocol: { name: "nixl" } },
      ...{ prefill: { target: { key: "p" } }, decode: { target: { key: "d" } } },
    });
    rig.matched.d = 7_001;
    const cached = choosePair(rig.context, rig.plan(), untried);
    expect(cached).toMatchObject({ reason: "below_threshold", whole: { target: { key: "d" }, matchedTokens: 7_001 } });
    rig.matched.d = 7_000;
    expect(choosePair(rig.context, rig.plan(), untried).reason).toBe("threshold");
  });

  test("a short prompt is not looked at twice", async () => {
    const rig = await splitRig({ engines: pair });
    const features = { ...rig.plan().features, promptTokens: 2_047 };
    expect(choosePair(rig.context, rig.plan({ features }), untried)).toEqual({
      ...{ protocol: undefined, whole: undefined, reason: "below_threshold" },
    });
  });

  test("the threshold falls while answers are being written where the prompt would be computed", async () => {
    const rig = await splitRig({ engines: pair });
    const reasonNow = () => choosePair(rig.context, rig.plan(), untried).reason;
    expect(reasonNow()).toBe("below_threshold");
    expect(rig.meter.value("espalier_disaggregation_threshold_tokens")).toBe(16_384);
    const tickets = Array.from({ length: 8 }, () =>
      rig.fleet.target("d").load.begin({ promptTokens: 100, uncachedTokens: 0, expectedOutputTokens: 100 }),
    );
    expect(reasonNow()).toBe("threshold");
    expect(rig.meter.value("espalier_disaggregation_threshold_tokens")).toBe(2_048);
    for (const ticket of tickets) ticket.end();
    expect(reasonNow()).toBe("below_threshold");
  });

  test("and rises while prompts wait at the prefill engine", async () => {
    const rig = await splitRig({ engines: pair });
    for (let at = 0; at < 8; at++) {
      rig.fleet.target("d").load.begin({ promptTokens: 100, uncachedTokens: 0, expectedOutputTokens: 100 });
    }
    rig.fleet.target("p").load.begin({ promptTokens: 200_000, expectedOutputTokens: 1 });
    expect(choosePair(rig.context, rig.plan(), untried).reason).toBe("below_threshold");
  });

  test("one that was set is what it is", async () => {
    const rig = await splitRig({ engines: pair, options: { thresholdTokens: 8_000 } });
    expect(choosePair(rig.context, rig.plan(), untried).reason).toBe("threshold");
    const features = { ...rig.plan().features, promptTokens: 7_999 };
    expect(choosePair(rig.context, rig.plan({ features }), untried).reason).toBe("below_threshold");
  });

  test("where nobody can serve it alone, any prompt is split", async () => {
    const rig = await splitRig({ engines: { p: ["prefill", "sglang"], d: ["decode", "sglang"] } });
    const features = { ...rig.plan().features, promptTokens: 5 };
    expect(choosePair(rig.context, rig.plan({ features }), untried)).toMatchObject({ reason: "required" });
  });
});

describe("which two", () => {
  test("the prefill engine that holds the prompt, the decode engine with the shorter batch", async () => {
    const engines = { ...pair, p2: ["prefill", "nixl"], d2: ["decode", "nixl"] } as const;
    const rig = await splitRig({ engines, options: low });
    rig.matched.p2 = 4_000;
    for (let at = 0; at < 20; at++) {
      rig.fleet.target("d").load.begin({ promptTokens: 9_000, uncachedTokens: 0, expectedOutputTokens: 500 });
    }
    expect(choosePair(rig.context, rig.plan(), untried)).toMatchObject({
      ...{ prefill: { target: { key: "p2" }, matchedTokens: 4_000 }, decode: { target: { key: "d2" } } },
    });
  });

  test("never one engine for both sides, and never two protocols", async () => {
    const rig = await splitRig({ engines: { b: ["both", "nixl"], m: ["prefill", "mooncake"] }, options: low });
    expect(choosePair(rig.context, rig.plan(), untried)).toMatchObject({
      ...{ reason: "no_prefill_engine", whole: { target: { key: "b" } } },
    });
  });

  test("what was tried is not tried again", async () => {
    const engines = { ...pair, p2: ["prefill", "nixl"], d2: ["decode", "nixl"] } as const;
    const rig = await splitRig({ engines, options: low });
    const tried = { any: new Set(["d"]), prefill: new Set(["p"]) };
    expect(choosePair(rig.context, rig.plan(), tried)).toMatchObject({
      ...{ prefill: { target: { key: "p2" } }, decode: { target: { key: "d2" } } },
    });
    const all = { any: new Set(["d", "d2"]), prefill: new Set(["p", "p2"]) };
    expect(choosePair(rig.context, rig.plan(), all)).toMatchObject({ reason: "no_decode_engine", whole: undefined });
  });

  test("engines that are away do not count", async () => {
    const rig = await splitRig({ engines: { ...pair, b: ["both"] }, options: low });
    rig.fleet.fleet.setDraining(rig.fleet.engine("d").id, true);
    expect(choosePair(rig.context, rig.plan(), untried)).toMatchObject({ reason: "no_decode_engine" });
    rig.fleet.fleet.setDraining(rig.fleet.engine("d").id, false);
    rig.fleet.fleet.setDraining(rig.fleet.engine("p").id, true);
    expect(choosePair(rig.context, rig.plan(), untried)).toMatchObject({ reason: "no_prefill_engine" });
  });

  test.each([
    ["several answers", {}, { ...chatBody, n: 2 }],
    ["one that only one engine can continue", { onlyEngine: "d" }, chatBody],
  ])("%s: one engine", async (_, changes, body) => {
    const rig = await splitRig({ engines: pair, options: low });
    expect(choosePair(rig.context, rig.plan(changes, body), untried).reason).toBe("unsupported");
  });

  test("what has no legs to be made of: one engine", async () => {
    const rig = await splitRig({ engines: pair, options: low });
    const { split: _, ...plan } = rig.plan();
    expect(choosePair(rig.context, plan, untried).reason).toBe("unsupported");
  });
});
