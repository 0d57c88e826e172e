import { shippedModelFolder } from "@espalier/tokenizer";
import { afterEach, expect, test } from "vitest";
import { feedsOf, publishingSims, quietSims } from "./cache-rig.ts";
import { ask, converse, forms, tokensOf } from "./cached-turns.ts";
import { inTurn, meshRouters, untilFolded, untilRead, untilSpread } from "./mesh-rig.ts";
import { createRig } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

test("a conversation's next turn at another router goes to the same engine, by placements of bytes", async () => {
  const sims = await quietSims(rig, 4);
  const routers = await meshRouters(rig, 3, sims, { tokenizes: false });
  let asked = 0;
  for (let seed = 0; seed < 3; seed++) {
    const conversation = converse(inTurn(routers), "chat", { seed }, sims[0]!);
    const first = await conversation.turn();
    await untilSpread(routers, ++asked);
    for (let turn = 1; turn < 4; turn++) {
      const next = await conversation.turn();
      await untilSpread(routers, ++asked);
      expect(next).toMatchObject({ status: 200, engine: first.engine });
      expect(next.predicted, `turn ${turn} of conversation ${seed}`).toBeGreaterThan(0);
    }
  }
});

test.each(forms)(
  "a conversation's next turn at another router goes to the same engine, %s with events, and what was predicted is found",
  async (form) => {
    const sims = await publishingSims(rig, 4);
    const routers = await meshRouters(rig, 3, sims);
    await untilRead(routers, 4);
    for (let seed = 0; seed < 3; seed++) {
      const conversation = converse(inTurn(routers), form, { seed }, sims[0]!);
      const engines = new Set<string>();
      for (let turn = 0; turn < 4; turn++) {
        const answer = await conversation.turn();
        await untilFolded(routers, sims);
        expect(answer.predicted, `turn ${turn} of conversation ${seed}`).toBe(answer.cached);
        if (turn > 0) expect(answer.cached).toBeGreaterThan(0);
        engines.add(answer.engine);
      }
      expect(engines.size).toBe(1);
    }
  },
);

test.each([true, false])("a burst of siblings at one router goes to one engine, with events: %s", async (events) => {
  const options = { speed: 20 };
  const sims = events ? await publishingSims(rig, 4, options) : await quietSims(rig, 4, options);
  const routers = await meshRouters(rig, 2, sims);
  if (events) await untilRead(routers, 4);
  const common = tokensOf(1, 600);
  const turns = await Promise.all(
    Array.from({ length: 20 }, (_, at) => {
      return ask(routers[1]!, "/v1/completions", { prompt: [...common, ...tokensOf(10 + at, 60)], max_tokens: 1 });
    }),
  );
  expect(new Set(turns.map(({ engine }) => engine)).size).toBe(1);
  expect(turns.filter(({ predicted }) => predicted === 592)).toHaveLength(19);
});

test("a sibling at another router follows one that still waits to be computed", async () => {
  const sims = await publishingSims(rig, 4, { speed: 0.5 });
  const routers = await meshRouters(rig, 2, sims);
  await untilRead(routers, 4);
  const common = tokensOf(1, 2_000);
  const send = (at: number) =>
    ask(routers[at]!, "/v1/completions", { prompt: [...common, ...tokensOf(10 + at, 60)], max_tokens: 1 });
  const first = send(0);
  await untilSpread(routers, 1);
  const second = await send(1);
  expect(second).toMatchObject({ engine: (await first).engine, predicted: 2_000 });
});

test("adapters and salts are kept apart at every router", async () => {
  const sims = await publishingSims(rig, 2, { adapters: ["adapter-a"] });
  const routers = await meshRouters(rig, 2, sims);
  await untilRead(routers, 2);
  const prompt = tokensOf(1, 200);
  const kinds = [{}, { model: "adapter-a" }, { cache_salt: "tenant" }, { model: "adapter-a", cache_salt: "tenant" }];
  for (const fields of kinds) {
    const [first, second] = [
      await ask(routers[0]!, "/v1/completions", { prompt, max_tokens: 1, ...fields }),
      await untilFolded(routers, sims).then(() =>
        ask(routers[1]!, "/v1/completions", { prompt, max_tokens: 1, ...fields }),
      ),
    ];
    await untilFolded(routers, sims);
    expect([first.predicted, first.cached], JSON.stringify(fields)).toEqual([0, 0]);
    expect(second, JSON.stringify(fields)).toMatchObject({ engine: first.engine, predicted: 192, cached: 192 });
  }
});

test("models are kept apart: what one model's engine holds draws nothing of another's", async () => {
  const sims = [
    ...(await publishingSims(rig, 2, { models: ["tiny"] })),
    ...(await publishingSims(rig, 2, { models: ["small"] })),
  ];
  const routers = await meshRouters(rig, 2, sims, {
    config: { tokenizers: ["tiny", "small"].map((model) => ({ models: [model], path: shippedModelFolder() })) },
  });
  await untilRead(routers, 4);
  const prompt = tokensOf(1, 200);
  const engines = new Set<string>();
  for (const model of ["tiny", "small"]) {
    const first = await ask(routers[0]!, "/v1/completions", { prompt, max_tokens: 1, model });
    await untilFolded(routers, sims);
    const second = await ask(routers[1]!, "/v1/completions", { prompt, max_tokens: 1, model });
    await untilFolded(routers, sims);
    expect([first.predicted, second.predicted, second.engine]).toEqual([0, 192, first.engine]);
    engines.add(first.engine);
  }
  expect(engines.size).toBe(2);
  expect(await feedsOf(routers[0]!)).toHaveLength(4);
});
