import { expect, test } from "vitest";
import {
  type Conversation,
  createConversations,
  firstMessageTokens,
  laterMessageTokens,
  systemTokens,
} from "../src/turns/conversations.ts";
import { runTurnsAround, runTwoTurns, summarizePairs, type TwoTurnOptions } from "../src/turns/run-two-turns.ts";
import { createFakeRouters, type FakeRouters } from "./fake-routers.ts";

interface ChatBody {
  readonly messages: readonly { readonly role: string; readonly content: string }[];
}

const chatOf = (body: string): ChatBody["messages"] => (JSON.parse(body) as ChatBody).messages;
const idsOf = (body: string): readonly number[] => (JSON.parse(body) as { prompt: number[] }).prompt;

test("the second turn of a chat begins with all of the first one", () => {
  const [one, other] = createConversations({ count: 2, form: "text", seed: 1 });
  const first = chatOf(one!.first.makeBody());
  const second = chatOf(one!.second.makeBody());
  expect(one!.first.path).toBe("/v1/chat/completions");
  expect(first.map(({ role }) => role)).toEqual(["system", "user"]);
  expect(second.map(({ role }) => role)).toEqual(["system", "user", "assistant", "user"]);
  expect(second.slice(0, 2)).toEqual(first);
  const foreign = chatOf(other!.first.makeBody());
  expect(foreign[0]).toEqual(first[0]);
  expect(foreign[1]).not.toEqual(first[1]);
});

test("the second turn as token ids begins with all of the first one, and has the announced lengths", () => {
  const [one, other] = createConversations({ count: 2, form: "tokens", seed: 1 });
  const first = idsOf(one!.first.makeBody());
  const second = idsOf(one!.second.makeBody());
  expect(one!.first.path).toBe("/v1/completions");
  expect(first).toHaveLength(systemTokens + firstMessageTokens);
  expect(second).toHaveLength(systemTokens + firstMessageTokens + 2 * laterMessageTokens);
  expect(second.slice(0, first.length)).toEqual(first);
  const foreign = idsOf(other!.first.makeBody());
  const shared = foreign.findIndex((id, at) => id !== first[at]);
  // Texts begin with seven words that spell their number, of which the first ones may agree.
  expect(shared).toBeGreaterThanOrEqual(systemTokens);
  expect(shared).toBeLessThan(systemTokens + 7);
});

test("what all conversations share is less than a tenth of either turn", () => {
  expect(systemTokens / (systemTokens + firstMessageTokens)).toBeLessThan(0.1);
});

test("a seed gives the same conversations again, another one none of them", () => {
  const bodies = (seed: number): readonly string[] =>
    createConversations({ count: 5, form: "text", seed }).flatMap(({ first, second }) => [
      first.makeBody(),
      second.makeBody(),
    ]);
  expect(bodies(3)).toEqual(bodies(3));
  const [one, other] = [chatOf(bodies(3)[0]!), chatOf(bodies(4)[0]!)];
  for (const [at, { content }] of one.entries()) expect(content).not.toBe(other[at]?.content);
});

const pair = (firstEngine: string, secondEngine: string, apartMs = 50) => ({ firstEngine, secondEngine, apartMs });

test("counts the conversations that stayed, the fullest engine and how far turns were apart", () => {
  const pairs = [pair("a", "a", 50), pair("a", "b", 51), pair("b", "b", 90), pair("a", "a", 50)];
  const outcome = summarizePairs(pairs);
  expect(outcome).toMatchObject({ conversations: 4, sameEngineShare: 0.75, largestEngineShare: 0.75 });
  expect(outcome.apartP99Ms).toBeGreaterThan(85);
});

test("shares are 0 where none stayed and 1 where all did", () => {
  expect(summarizePairs([pair("a", "b"), pair("b", "a")]).sameEngineShare).toBe(0);
  expect(summarizePairs([pair("a", "a"), pair("b", "b")])).toMatchObject({
    sameEngineShare: 1,
    largestEngineShare: 0.5,
  });
});

const count = 30;

function optionsOf(routers: FakeRouters, more: Partial<TwoTurnOptions> = {}): TwoTurnOptions {
  return {
    conversations: createConversations({ count, form: "text", seed: 1 }),
    firstUrls: routers.urls,
    secondUrlOf: (index) => routers.urls[(index + 1) % routers.urls.length]!,
    ratePerSecond: 100,
    seed: 1,
    ...more,
  };
}

test("second turns follow exactly W after the first ones, at another router, whether or not those are answered", async () => {
  const routers = createFakeRouters({ routers: 3, answerAfterMs: 1_000, engineOf: () => "engine" });
  const outcome = await routers.drive(runTwoTurns(optionsOf(routers), 50, routers.ports));
  expect(outcome).toMatchObject({ conversations: count, sameEngineShare: 1 });
  expect(outcome.apartP99Ms).toBeCloseTo(50, 6);
  expect(routers.sent).toHaveLength(2 * count);
  const turns = new Map<string, { url: string; atMs: number }[]>();
  for (const { url, body, atMs } of routers.sent) {
    const user = chatOf(body)[1]!.content;
    turns.set(user, [...(turns.get(user) ?? []), { url, atMs }]);
  }
  expect(turns.size).toBe(count);
  for (const [one, other] of turns.values()) {
    expect(other!.atMs - one!.atMs).toBeCloseTo(50, 6);
    expect(routers.urls.indexOf(other!.url)).toBe((routers.urls.indexOf(one!.url) + 1) % 3);
  }
  const firstTurns = routers.sent.filter(({ body }) => chatOf(body).length === 2);
  for (const url of routers.urls) expect(firstTurns.filter((turn) => turn.url === url)).toHaveLength(count / 3);
});

test("conversations that change engines with their router are not counted", async () => {
  const routers = createFakeRouters({ routers: 2, answerAfterMs: 5, engineOf: ({ url }) => `engine of ${url}` });
  const outcome = await routers.drive(runTwoTurns(optionsOf(routers), 50, routers.ports));
  expect(outcome).toMatchObject({ sameEngineShare: 0, largestEngineShare: 0.5 });
});

test("arrivals are as many a second as was asked for", async () => {
  const routers = createFakeRouters({ routers: 2, answerAfterMs: 5, engineOf: () => "engine" });
  const conversations = createConversations({ count: 400, form: "text", seed: 2 });
  await routers.drive(runTwoTurns(optionsOf(routers, { conversations }), 10, routers.ports));
  const lastMs = Math.max(...routers.sent.map(({ atMs }) => atMs));
  expect(lastMs).toBeGreaterThan(3_000);
  expect(lastMs).toBeLessThan(5_000);
});

test("a request that fails ends the run with an error that names its router", async () => {
  const routers = createFakeRouters({ routers: 2, answerAfterMs: 5, engineOf: () => "engine", failAt: 7 });
  const run = runTwoTurns(optionsOf(routers), 50, routers.ports);
  await expect(routers.drive(run)).rejects.toThrow(/^a turn at http:\/\/router-\d failed: it broke$/);
});

test("a second turn that fails ends the run as well", async () => {
  const routers = createFakeRouters({ routers: 2, answerAfterMs: 5, engineOf: () => "engine", failAt: 2 * count });
  await expect(routers.drive(runTwoTurns(optionsOf(routers), 50, routers.ports))).rejects.toThrow("it broke");
});

test("a router that does not name the engine cannot be measured", async () => {
  const routers = createFakeRouters({ routers: 2, answerAfterMs: 5, engineOf: () => undefined });
  const run = runTwoTurns(optionsOf(routers), 50, routers.ports);
  await expect(routers.drive(run)).rejects.toThrow(/^the router at http:\/\/router-1 does not name the engine$/);
});

test("what comes between the turns happens after all answers to first turns and before all second turns", async () => {
  const routers = createFakeRouters({ routers: 3, answerAfterMs: 700, engineOf: () => "engine" });
  const [dead, ...living] = routers.urls;
  const options = optionsOf(routers, {
    firstUrls: [dead!],
    secondUrlOf: (index) => living[index % living.length]!,
  });
  let sentBefore = 0;
  let betweenMs = 0;
  const between = async (): Promise<void> => {
    sentBefore = routers.sent.length;
    betweenMs = routers.ports.clock.nowMs();
  };
  const outcome = await routers.drive(runTurnsAround(options, between, routers.ports));
  expect(outcome).toMatchObject({ conversations: count, sameEngineShare: 1 });
  expect(sentBefore).toBe(count);
  const firsts = routers.sent.slice(0, count);
  expect(new Set(firsts.map(({ url }) => url))).toEqual(new Set([dead]));
  expect(Math.max(...firsts.map(({ atMs }) => atMs)) + 700).toBeLessThanOrEqual(betweenMs);
  const seconds = routers.sent.slice(count);
  expect(new Set(seconds.map(({ url }) => url))).toEqual(new Set(living));
  for (const { body, atMs } of seconds) {
    expect(chatOf(body)).toHaveLength(4);
    expect(atMs).toBeGreaterThanOrEqual(betweenMs);
  }
});

test("what fails between the turns ends the run, and no second turn is sent", async () => {
  const routers = createFakeRouters({ routers: 2, answerAfterMs: 5, engineOf: () => "engine" });
  const between = (): Promise<void> => Promise.reject(new Error("it would not die"));
  await expect(routers.drive(runTurnsAround(optionsOf(routers), between, routers.ports))).rejects.toThrow(
    "it would not die",
  );
  expect(routers.sent).toHaveLength(count);
});

test("conversations are told apart by their order, not by their ends", async () => {
  // Later conversations answer sooner, so ends come in reverse; engines are by conversation.
  const engines = new Map<string, string>();
  const engineOf = ({ body }: { body: string }): string => {
    const user = chatOf(body)[1]!.content;
    if (!engines.has(user)) engines.set(user, `engine-${engines.size}`);
    return engines.get(user)!;
  };
  const routers = createFakeRouters({
    routers: 2,
    answerAfterMs: ({ order }) => Math.max(1, 5_000 - 100 * order),
    engineOf,
  });
  const conversations: readonly Conversation[] = createConversations({ count, form: "text", seed: 5 });
  const outcome = await routers.drive(
    runTurnsAround(optionsOf(routers, { conversations }), async () => {}, routers.ports),
  );
  expect(outcome.sameEngineShare).toBe(1);
  expect(outcome.largestEngineShare).toBeCloseTo(1 / count, 9);
});
