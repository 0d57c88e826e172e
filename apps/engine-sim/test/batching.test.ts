import type { EngineParameters } from "@espalier/engine-model";
import { createVirtualTime, waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import { type OpenRequest, openRequest, parseEvents, startSim, type TestSim, untilIdle } from "./sim-client.ts";

/** Times that are easy to add up: 10 ms a step, 1 ms per prompt token. */
const simple: Partial<EngineParameters> = {
  stepBaseMs: 10,
  prefillMsPerToken: 1,
  attentionMsPerTokenPair: 0,
  decodeMsPerSequence: 0,
  decodeMsPerContextToken: 0,
  maxBatchedTokens: 64,
  blockSize: 16,
};

interface Bench {
  readonly sim: TestSim;
  readonly time: ReturnType<typeof createVirtualTime>;
  /** Starts a stream that is in the engine when this resolves. */
  start(prompt: readonly number[], tokens: number): Promise<OpenRequest>;
}

async function bench(parameters: Partial<EngineParameters> = {}): Promise<Bench> {
  const time = createVirtualTime();
  const clocks = { clock: time.clock, scheduler: time.scheduler };
  const sim = await startSim({ ...clocks, speed: 1, parameters: { ...simple, ...parameters } });
  let started = 0;
  return {
    sim,
    time,
    async start(prompt, tokens) {
      const request = openRequest(`${sim.url}/v1/completions`, { prompt, max_tokens: tokens, stream: true });
      started++;
      await waitFor(async () => (await sim.state()).active.length === started, { what: `${started} requests` });
      return request;
    },
  };
}

const prompt = (tokens: number, filler = 1): number[] => Array(tokens).fill(filler);
const words = (request: OpenRequest): number => request.received().split("\n\n").length - 1;
const untilWords = (request: OpenRequest, count: number): Promise<boolean> =>
  waitFor(() => words(request) === count, { what: `${count} words` });

test("a prompt above the step's budget is computed in chunks", async () => {
  const { sim, time, start } = await bench();
  // Three chunks of 64, 64 and 12 tokens: 74 + 74 + 22 ms.
  const request = await start(prompt(140), 2);
  time.advance(169);
  // The third step runs.
  expect((await sim.state()).stats).toMatchObject({ steps: 3, generatedTokens: 0 });
  time.advance(2);
  await untilWords(request, 1);
  time.advance(10);
  await request.ended;
});

test("a long prompt slows the words of others down, but does not stop them", async () => {
  const { time, start } = await bench();
  const talker = await start(prompt(10, 2), 30);
  time.advance(21);
  await untilWords(talker, 1);
  const reader = await start(prompt(126, 3), 1);
  // The step that runs goes on for 10 ms; then come two with 63 tokens of the prompt beside the word: 73 ms each.
  time.advance(11);
  await untilWords(talker, 2);
  time.advance(60);
  expect(words(talker)).toBe(2);
  time.advance(14);
  await untilWords(talker, 3);
  time.advance(74);
  await untilWords(talker, 4);
  expect(parseEvents((await reader.ended).text)).toHaveLength(2);
  time.advance(400);
  await talker.ended;
});

test("what does not fit the running set waits its turn, in order of arrival", async () => {
  const { sim, time, start } = await bench({ maxRunning: 1 });
  const first = await start(prompt(10, 1), 3);
  const second = await start(prompt(10, 2), 3);
  const third = await start(prompt(10, 3), 3);
  expect((await sim.state()).stats).toMatchObject({ running: 1, waiting: 2 });
  // Each takes 20 ms for its prompt and 10 for each of two more words.
  time.advance(41);
  await first.ended;
  expect((await sim.state()).stats).toMatchObject({ running: 1, waiting: 1 });
  time.advance(41);
  await second.ended;
  time.advance(41);
  await third.ended;
  const arrived = (await sim.state()).requests.map(({ reports }) => reports[0]?.scheduledMs as number);
  expect(arrived).toEqual([...arrived].sort((a, b) => a - b));
  expect(arrived[1]).toBeGreaterThanOrEqual(40);
  expect(arrived[2]).toBeGreaterThanOrEqual(80);
});

test("what the cache holds costs no time", async () => {
  const { sim, time, start } = await bench();
  const cold = await start(prompt(60), 1);
  time.advance(71);
  await cold.ended;
  const warm = openRequest(`${sim.url}/v1/completions`, { prompt: prompt(60), max_tokens: 1, stream: true });
  await waitFor(async () => (await sim.state()).active.length === 1, { what: "the second request" });
  // 48 of 60 tokens are there, 12 are computed.
  time.advance(21);
  expect(words(warm)).toBe(0);
  time.advance(2);
  await warm.ended;
  const [first, second] = (await sim.state()).requests.map(({ reports }) => reports[0]);
  const took = (report: Record<string, number> | undefined) =>
    (report?.firstTokenMs as number) - (report?.arrivedMs as number);
  expect(took(first)).toBe(70);
  expect(took(second)).toBe(22);
});

test("streams that run together keep their own words", async () => {
  const sim = await startSim({ speed: 500 });
  const bodies = Array.from({ length: 20 }, (_, index) => ({ prompt: `stream ${index}`, max_tokens: 60 }));
  const together = await Promise.all(bodies.map((body) => sim.events("/v1/completions", { ...body, stream: true })));
  for (const [index, events] of together.entries()) {
    const text = events
      .slice(0, -1)
      .map(({ data }) => (JSON.parse(data) as { choices: { text: string }[] }).choices[0]?.text)
      .join("");
    const alone = (await sim.post("/v1/completions", bodies[index])).json as { choices: { text: string }[] };
    expect(text).toBe(alone.choices[0]?.text);
  }
}, 20_000);

test("what a client leaves behind makes room for those that wait", async () => {
  const { sim, time, start } = await bench({ maxRunning: 1 });
  const leaving = await start(prompt(10, 1), 1_000);
  const waiting = await start(prompt(10, 2), 1);
  time.advance(25);
  leaving.destroy();
  await waitFor(async () => (await sim.state()).active.length === 1, { what: "one request left" });
  // The step that runs ends first, 5 ms from here; then the other one's prompt takes 20.
  time.advance(30);
  await waiting.ended;
  const state = await untilIdle(sim);
  expect(state.totals).toMatchObject({ aborted: 1, finished: 1 });
  expect(time.pendingCount).toBe(0);
});
