/** Engines of role both keep to one side, where that is applied; what would be left without anybody is served all the same. */
import { prefillCountHoldMs, prefillCountSettleMs } from "@espalier/routing";
import { expect, test } from "vitest";
import { choosePair, type SplitRig, splitRig } from "./split-rig.ts";

const untried = { any: new Set<string>(), prefill: new Set<string>() };
const names = ["a", "b", "c", "d"];
const four = Object.fromEntries(names.map((name) => [name, ["both", "nixl"] as const]));
const low = { minTokens: 1_000, maxTokens: 1_000, applyRoleBalance: true };

/** Has had a mix of requests of which so much is prefill, for as long as it takes. */
async function busyRig(
  share: number,
  options: object = low,
  engines: Parameters<typeof splitRig>[0]["engines"] = four,
) {
  const rig = await splitRig({ engines, options });
  const { balance } = rig.context.split.planner.rolesOf(rig.plan().pool);
  balance.observe({ uncachedTokens: 0, outputTokens: 200 * (1 - share), prefillMs: 100 * share });
  choosePair(rig.context, rig.plan(), untried);
  // A second more, for engines are looked at once in that.
  await rig.fleet.time.advanceAsync(prefillCountSettleMs + 1_000);
  choosePair(rig.context, rig.plan(), untried);
  return rig;
}

const assignedRolesOf = ({ context, fleet }: SplitRig) =>
  Object.fromEntries(fleet.fleet.engines.map((engine) => [engine.id, context.split.assignedRoleOf(engine)]));

/** Who is chosen for many requests: the sides of pairs, and engines that serve alone. */
function chosen(rig: SplitRig, promptTokens: number, tried = untried) {
  const features = { ...rig.plan().features, promptTokens };
  const sides = { prefill: new Set<string>(), decode: new Set<string>(), alone: new Set<string>() };
  for (let request = 0; request < 200; request++) {
    const choice = choosePair(rig.context, rig.plan({ features }), tried);
    if (choice.protocol) {
      // As its run does.
      rig.context.split.planner.rolesOf(rig.plan().pool).paired();
      sides.prefill.add(choice.prefill.target.key);
      sides.decode.add(choice.decode.target.key);
      continue;
    }
    const accepts = rig.context.split.planner.alonePredicate(rig.plan().pool, rig.plan().targets, tried.any);
    const { tried: keys } = { tried: tried.any };
    const { pool, targets } = rig.plan();
    const whole =
      choice.whole ?? rig.context.selector.select(pool, targets, rig.plan({ features }), { tried: keys, accepts });
    if (whole) sides.alone.add(whole.target.key);
  }
  return { prefill: [...sides.prefill].sort(), decode: [...sides.decode].sort(), alone: [...sides.alone].sort() };
}

test("half of the work is prefill: two engines compute, two answer, short prompts among it", async () => {
  const rig = await busyRig(0.5);
  const roles = assignedRolesOf(rig);
  const on = (role: string) => names.filter((name) => roles[name] === role);
  expect([on("prefill").length, on("decode").length]).toEqual([2, 2]);
  expect(chosen(rig, 8_000)).toEqual({ prefill: on("prefill"), decode: on("decode"), alone: [] });
  expect(chosen(rig, 100)).toEqual({ prefill: [], decode: [], alone: on("decode") });
  expect(rig.meter.value("espalier_disaggregation_prefill_engines", "m")).toBe(2);
});

test("while no request is split, short prompts go to every engine", async () => {
  const rig = await busyRig(0.5);
  expect(chosen(rig, 100).alone).toEqual(names);
  chosen(rig, 8_000);
  expect(chosen(rig, 100).alone).toHaveLength(2);
  await rig.fleet.time.advanceAsync(prefillCountHoldMs);
  expect(chosen(rig, 100).alone).toEqual(names);
});

test("not applied, every engine is on either side", async () => {
  const rig = await busyRig(0.5, { ...low, applyRoleBalance: false });
  expect(assignedRolesOf(rig)).toEqual({ a: undefined, b: undefined, c: undefined, d: undefined });
  expect(chosen(rig, 100).alone).toEqual(names);
  expect(chosen(rig, 8_000).decode).toEqual(names);
});

test("engines of other roles stay what they are, and count", async () => {
  const rig = await busyRig(0.5, low, { ...four, p: ["prefill", "nixl"], q: ["decode", "nixl"] });
  const roles = assignedRolesOf(rig);
  expect([roles.p, roles.q]).toEqual([undefined, undefined]);
  expect(names.filter((name) => roles[name] === "prefill")).toHaveLength(2);
  expect(chosen(rig, 8_000).prefill).toContain("p");
  expect(chosen(rig, 8_000).decode).toContain("q");
});

test("engines that hand nothing over, or cannot be either, are assigned no role and serve alone", async () => {
  const rig = await busyRig(0.5, low, { ...four, x: ["both"], s: ["both", "sglang"] });
  expect(assignedRolesOf(rig)).toMatchObject({ x: undefined, s: undefined });
  expect(chosen(rig, 100).alone).toEqual(expect.arrayContaining(["x", "s"]));
});

test("when those that answer have failed the request, one that computes prompts answers", async () => {
  const rig = await busyRig(0.75);
  const roles = assignedRolesOf(rig);
  const [answering] = names.filter((name) => roles[name] === "decode");
  const tried = { any: new Set([answering!]), prefill: new Set<string>() };
  expect(chosen(rig, 100, tried).alone).toEqual(names.filter((name) => name !== answering));
});

test("when those that answer are gone, another engine takes the role within a second", async () => {
  const rig = await busyRig(0.75);
  const [answering] = names.filter((name) => assignedRolesOf(rig)[name] === "decode");
  rig.fleet.fleet.setDraining(rig.fleet.engine(answering!).id, true);
  expect(chosen(rig, 100).alone.length).toBeGreaterThan(0);
  await rig.fleet.time.advanceAsync(1_000);
  choosePair(rig.context, rig.plan(), untried);
  const left = names.filter((name) => name !== answering);
  expect(left.filter((name) => assignedRolesOf(rig)[name] === "decode")).toHaveLength(1);
  expect(chosen(rig, 8_000).decode).toHaveLength(1);
});

test("answered requests are weighed by what engines took for them", async () => {
  const rig = await splitRig({ engines: four });
  const { split, selector } = rig.context;
  const { pool, targets } = rig.plan();
  const selection = selector.select(pool, targets, rig.plan(), { tried: new Set() });
  const served = { promptTokens: 8_000, uncachedTokens: 8_000, outputTokens: 400, writingMs: 10_000 };
  split.planner.served(rig.plan(), selection?.target, served);
  // 8,000 tokens at the usual rate; of the engine's memory nothing is known.
  expect(split.planner.rolesOf(pool).balance.work()).toEqual({ prefillMs: 800, decodeMs: 200 });
  expect(rig.meter.value("espalier_disaggregation_advised_prefill_ratio", "m")).toBeCloseTo(0.8, 9);
  expect(rig.meter.value("espalier_disaggregation_advised_prefill_engines", "m")).toBe(3);
});
