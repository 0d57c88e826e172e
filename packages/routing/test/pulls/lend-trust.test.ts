/** Engines from which pulls fail are asked less, and are tried again. */
import { createSeriesMeter, createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { createLendTrust, maxLenders } from "../../src/pulls/lend-trust.ts";

const source = { index: 3, key: "engine-a" };

function rig() {
  const time = createVirtualTime();
  const meter = createSeriesMeter();
  return { time, meter, trust: createLendTrust(time.clock, meter) };
}

test("an engine is trusted until a pull from it fails, and half again as much after half a minute", () => {
  const { time, trust } = rig();
  trust.ended(source, 100, true);
  expect(trust.of(source)).toBe(1);
  trust.ended(source, 100, false);
  expect(trust.of(source)).toBeCloseTo(0.7);
  trust.ended(source, 100, false);
  expect(trust.of(source)).toBeCloseTo(0.49);
  time.advance(30_000);
  expect(trust.of(source)).toBeCloseTo(1 - 0.51 / 2);
  trust.ended(source, 100, true);
  expect(trust.of(source)).toBeCloseTo(1 - 0.7 * (0.51 / 2));
  expect(trust.of({ index: 3, key: "its successor" })).toBe(1);
});

test("an answer without cached tokens tells nothing", () => {
  const { meter, trust } = rig();
  trust.ended(source, 100, undefined);
  expect(trust.of(source)).toBe(1);
  trust.ended(source, 200, false);
  trust.ended(source, 300, true);
  const of = (outcome: string) => meter.value("espalier_kv_pulls_total", outcome);
  expect([of("unknown"), of("miss"), of("hit")]).toEqual([1, 1, 1]);
  expect(meter.value("espalier_kv_pull_tokens_total")).toBe(600);
});

test("targets past the bound stay trusted, and others are still learned about", () => {
  const { trust } = rig();
  const beyond = { index: maxLenders, key: "beyond" };
  trust.ended(beyond, 100, false);
  expect(trust.of(beyond)).toBe(1);
  trust.ended({ index: maxLenders - 1, key: "last" }, 100, false);
  expect(trust.of({ index: maxLenders - 1, key: "last" })).toBeLessThan(1);
});
