import { afterEach, describe, expect, test } from "vitest";
import { cacheRouter, publishingSims, untilHeard } from "./cache-rig.ts";
import { ask, type Turn, wordsOf } from "./cached-turns.ts";
import { type Json, post } from "./client.ts";
import { createRig } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const tools = [{ name: "tide", input_schema: { properties: {} }, cache_control: { type: "ephemeral" } }];

/** The conversation of an agent in each API, in which the answers are its own. */
const apis: Readonly<Record<string, { path: string; body: (turns: readonly Json[]) => Json }>> = {
  messages: {
    path: "/v1/messages",
    body: (turns) => ({ system: [{ type: "text", text: wordsOf(1, 60) }], tools, messages: turns, max_tokens: 8 }),
  },
  responses: {
    path: "/v1/responses",
    body: (turns) => ({ instructions: wordsOf(1, 60), input: turns, max_output_tokens: 8, store: false }),
  },
  "chats with a developer": {
    path: "/v1/chat/completions",
    body: (turns) => ({ messages: [...turns, { role: "developer", content: wordsOf(1, 60) }], max_tokens: 8 }),
  },
};

/**
 * Agents' requests were matched by their bytes, and those with a developer rendered as no engine does it: over four turns
 * 0, 96, 160 and 224 tokens were predicted of 0, 160, 256 and 384.
 */
describe.each(Object.keys(apis))("%s", (name) => {
  test("are predicted exactly, turn by turn", async () => {
    const { path, body } = apis[name]!;
    const sims = await publishingSims(rig, 1);
    const router = await cacheRouter(rig, sims);
    const turns: Json[] = [];
    const seen: Turn[] = [];
    for (let turn = 0; turn < 4; turn++) {
      turns.push({ role: "user", content: wordsOf(10 + turn, 40) });
      seen.push(await ask(router, path, body(turns)));
      turns.push({ role: "assistant", content: seen.at(-1)!.text });
      await untilHeard(router, sims);
    }
    expect(seen.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    expect(seen.map(({ predicted }) => predicted)).toEqual(seen.map(({ cached }) => cached));
    expect(seen[3]!.cached).toBeGreaterThan(200);
  });
});

/** Coding agents ask how long a prompt is before they send it: the router answered 404 where the engine answers. */
test("the tokens of a prompt are counted by an engine", async () => {
  const sims = await publishingSims(rig, 1);
  const router = await cacheRouter(rig, sims);
  const body = { system: wordsOf(1, 60), messages: [{ role: "user", content: "Hi" }] };
  const counted = await post(`${router.url}/v1/messages/count_tokens`, { model: "tiny", ...body });
  const turn = await ask(router, "/v1/messages", { ...body, max_tokens: 1 });
  expect([counted.status, counted.json]).toEqual([200, { input_tokens: turn.promptTokens }]);
  const refused = await post(`${router.url}/v1/messages/count_tokens`, { model: "tiny" });
  expect([refused.status, refused.json.type]).toEqual([400, "error"]);
});
