import { defaultAdmissionSettings, type EngineOrder, enginePlace } from "@espalier/routing";
import { expect, test } from "vitest";
import { enginePriority } from "../../src/fleet/sim-exchange.ts";
import { kvLinkOf, type SplitSettings } from "../../src/fleet/sim-router.ts";
import { type RequestShape, requestOf } from "./requests.ts";
import { createRouterRig, idleLoad, type RouterRigOptions } from "./router-rig.ts";

const arrivedWallMs = 1_000_000;

/** Which requests had their first tokens, in order. They are told apart by their prompts, which all differ. */
async function answered(shapes: readonly RequestShape[], options: RouterRigOptions): Promise<readonly number[]> {
  const { time, outcomes, load, router } = await createRouterRig({ engines: 1, ...options });
  const firstTokens: (readonly [number, number])[] = [];
  for (const shape of shapes) {
    router.handle(requestOf(shape), ({ firstTokenMs }) => firstTokens.push([firstTokenMs, shape.index]));
    time.advance(5);
  }
  time.advance(60_000);
  expect(firstTokens).toHaveLength(shapes.length);
  expect([outcomes, load()]).toEqual([[], idleLoad]);
  return firstTokens.sort(([one], [other]) => one - other).map(([, index]) => index);
}

/** The first one keeps the engine busy for 2 s. */
const mixed: readonly RequestShape[] = [
  { index: 0, promptTokens: 16_000 },
  { index: 1, promptTokens: 8_000 },
  { index: 2, promptTokens: 160 },
  { index: 3, promptTokens: 2_400 },
];

test.each<[EngineOrder, readonly number[]]>([
  ["arrival", [0, 1, 2, 3]],
  ["shortest", [0, 2, 3, 1]],
])("an engine that goes by %s answers what waits in it in that order", async (engineOrder, order) => {
  expect(await answered(mixed, { engineOrder })).toEqual(order);
});

test("a class goes before a lower one, whatever its prompts ask for", async () => {
  const shapes = mixed.map((shape) => ({ ...shape, className: shape.index === 1 ? "interactive" : "default" }));
  const admission = defaultAdmissionSettings;
  expect(await answered(shapes, { engineOrder: "shortest", admission })).toEqual([0, 1, 2, 3]);
});

test("engines that compute prompts for others go by it as well", async () => {
  const link = kvLinkOf({ setupMs: 1, bytesPerS: 1e12 }, 1_024);
  const split: SplitSettings = { link, minTokens: 1, maxTokens: 131_072, thresholdTokens: 1, appliesBalance: false };
  const options = { engines: 2, roles: ["prefill", "decode"], split } as const;
  const long = mixed.filter(({ index }) => index !== 2);
  expect(await answered(long, { ...options, engineOrder: "arrival" })).toEqual([0, 1, 3]);
  expect(await answered(long, { ...options, engineOrder: "shortest" })).toEqual([0, 3, 1]);
});

test("an engine is told what a real one is, and nothing where it takes requests as they come", () => {
  const work = { arrivedWallMs, workMs: 40 };
  const admission = defaultAdmissionSettings;
  expect(enginePriority({}, {}, work)).toEqual({});
  expect(enginePriority({ engineOrder: "arrival", admission }, { className: "batch" }, work)).toEqual({});
  expect(enginePriority({ engineOrder: "shortest" }, { className: "batch" }, work)).toEqual({ priority: 1_000_800 });
  expect(enginePriority({ engineOrder: "shortest", admission }, { className: "background" }, work)).toEqual({
    priority: enginePlace({ classesBelow: 2, ...work }),
  });
});
