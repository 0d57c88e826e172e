import { afterEach, expect, test } from "vitest";
import { publishingSims } from "./cache-rig.ts";
import { ask, type Turn, tokensOf } from "./cached-turns.ts";
import { joinRouter, meshRouters, untilFolded, untilRead } from "./mesh-rig.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const bodyOf = (prompt: readonly number[]) => ({ prompt, max_tokens: 4 });

test.each([
  ["a sliding window", { windowTokens: 60 }],
  ["states", { stateGroups: 2 }],
])("%s: each router predicts what an engine can use, not what it holds", async (_name, hybrid) => {
  const sims = await publishingSims(rig, 1, { parameters: { ...hybrid, blockSize: 16, blockCount: 200 } });
  const routers = await meshRouters(rig, 2, sims);
  await untilRead(routers, 1);
  const [one, two] = routers as [RunningRouter, RunningRouter];
  const send = async (router: RunningRouter, prompt: readonly number[]): Promise<Turn> => {
    const turn = await ask(router, "/v1/completions", bodyOf(prompt));
    expect(turn.status).toBe(200);
    await untilFolded(routers, sims);
    return turn;
  };
  const shared = tokensOf(1, 320);
  const branch = (seed: number): number[] => [...shared, ...tokensOf(seed, 100)];
  await send(one, branch(2));

  // The blocks of the shared beginning are there, and no window or state that ends with it.
  const explained = await two.admin("POST", "/admin/explain?endpoint=completions", {
    model: "tiny",
    ...bodyOf(branch(3)),
  });
  const [candidate] = explained.json.candidates as readonly { readonly facts: { readonly heldBlocks: number } }[];
  expect(candidate!.facts).toMatchObject({ heldBlocks: 20, blocks: { gpu: 0 } });
  const turns = [
    await send(two, branch(3)),
    await send(one, branch(4)),
    await send(two, [...branch(4), ...tokensOf(5, 50)]),
  ];
  expect(turns.map(({ cached }) => cached)).toEqual([0, 320, 416]);
  expect(turns.map(({ predicted }) => predicted)).toEqual([0, 320, 416]);

  // A router that joins learns the points from a snapshot.
  const three = await joinRouter(rig, one, sims, { mesh: { "router-id": "router-2" } });
  await untilFolded([...routers, three], sims);
  const joined = await send(three, [...branch(3), ...tokensOf(6, 20)]);
  expect([joined.predicted, joined.cached]).toEqual([416, 416]);
});
