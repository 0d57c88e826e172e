import { createSeededRandom } from "@espalier/core";
import { createPolicy } from "@espalier/policies";
import { createTargetSelector, type PrefixKnowledge } from "@espalier/routing";
import { beforeEach, expect, test } from "vitest";
import { type ScriptedFleet, specOf, startScriptedFleet } from "./prefix/scripted-fleet.ts";

const features = { promptTokens: 100, expectedOutputTokens: 10, sessionKey: undefined, prefixKey: undefined };

let scripted: ScriptedFleet;

beforeEach(async () => {
  scripted = await startScriptedFleet();
  await scripted.apply(specOf("a"), specOf("b"), specOf("c"));
});

/** The keys of all targets that a request may go to, in the order of its attempts. */
function reachable(): string[] {
  const selector = createTargetSelector({ random: createSeededRandom(1), knowledge: {} as PrefixKnowledge });
  const pool = { policy: createPolicy("least_connections") };
  const tried = new Set<string>();
  const next = () => selector.select(pool, scripted.fleet.pool("m"), { features, prompt: undefined }, { tried });
  for (let choice = next(); choice; choice = next()) tried.add(choice.target.key);
  return [...tried].sort();
}

test.each<[string, () => void]>([
  ["draining", () => void scripted.fleet.setDraining(scripted.engine("b").id, true)],
  [
    "refused by its breaker",
    () => {
      for (let failure = 0; failure < 5; failure++) scripted.engine("b").breaker.begin()?.failure("upstream_reset");
    },
  ],
])("a request goes to every engine of the fleet but one that is %s", (_, change) => {
  expect(reachable()).toEqual(["a", "b", "c"]);
  change();
  expect(reachable()).toEqual(["a", "c"]);
});

test("a request does not go to an engine that is down", async () => {
  scripted.answers.a = { "/health": "refused" };
  await scripted.time.advanceAsync(20_000);
  expect(reachable()).toEqual(["b", "c"]);
});

test("the load of an engine counts from the moment at which a request is sent there", () => {
  const selector = createTargetSelector({ random: createSeededRandom(1), knowledge: {} as PrefixKnowledge });
  const pool = { policy: createPolicy("least_connections") };
  const chosen: string[] = [];
  for (let request = 0; request < 6; request++) {
    const of = { features, prompt: undefined };
    const { target } = selector.select(pool, scripted.fleet.pool("m"), of, { tried: new Set() })!;
    target.load.begin({ promptTokens: 1, expectedOutputTokens: 1 });
    chosen.push(target.key);
  }
  expect(chosen.sort()).toEqual(["a", "a", "b", "b", "c", "c"]);
});
