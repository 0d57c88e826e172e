import { systemClock } from "@espalier/core";
import { type EngineParameters, enginePresets } from "@espalier/engine-model";
import { createVirtualTime, waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import { openRequest, parseEvents, startSim } from "./sim-client.ts";

const completions = "/v1/completions";
const prompt = Array(100).fill(5);

/** What the model's formula says about a prompt that is alone: prefill in one step, then one step per token. */
function expectedTimes(parameters: EngineParameters, promptTokens: number) {
  const { stepBaseMs, prefillMsPerToken, attentionMsPerTokenPair, decodeMsPerSequence, decodeMsPerContextToken } =
    parameters;
  const pairs = (promptTokens * (promptTokens + 1)) / 2;
  const firstMs = stepBaseMs + prefillMsPerToken * promptTokens + attentionMsPerTokenPair * pairs;
  const stepMs = stepBaseMs + decodeMsPerSequence + decodeMsPerContextToken * (promptTokens + 1);
  return { firstMs, stepMs };
}

/** Waits until the server has taken in a request: real sockets live outside virtual time. */
const untilActive = (sim: Awaited<ReturnType<typeof startSim>>, count: number) =>
  waitFor(async () => (await sim.state()).active.length === count, { what: `${count} active requests` });

test("nothing comes before its engine time, and everything at it", async () => {
  const time = createVirtualTime();
  const sim = await startSim({ speed: 1, clock: time.clock, scheduler: time.scheduler });
  const { firstMs, stepMs } = expectedTimes(enginePresets["a10g-7b"].parameters, 100);
  const request = openRequest(sim.url + completions, { prompt, max_tokens: 3, stream: true });
  await untilActive(sim, 1);
  const events = () => request.received().split("\n\n").length - 1;

  time.advance(Math.floor(firstMs));
  expect((await sim.state()).stats.generatedTokens).toBe(0);
  expect(events()).toBe(0);
  // Timers have whole milliseconds: the first one after the end of the step.
  time.advance(1);
  await waitFor(() => events() === 1, { what: "the first token" });
  time.advance(Math.floor(stepMs) - 1);
  expect((await sim.state()).stats.generatedTokens).toBe(1);
  time.advance(2);
  await waitFor(() => events() === 2, { what: "the second token" });
  time.advance(Math.ceil(stepMs) + 1);
  expect(parseEvents((await request.ended).text)).toHaveLength(4);
  expect(time.pendingCount).toBe(0);
});

test("the engine computes on exact times, however late the timer is", async () => {
  const time = createVirtualTime();
  const sim = await startSim({ speed: 1, clock: time.clock, scheduler: time.scheduler });
  const { firstMs, stepMs } = expectedTimes(enginePresets["a10g-7b"].parameters, 100);
  time.advance(1_000);
  const answer = sim.post(completions, { prompt, max_tokens: 2 });
  await untilActive(sim, 1);
  time.advance(5_000);
  await answer;
  const report = (await sim.state()).requests[0]?.reports[0] as Record<string, number>;
  expect(report.arrivedMs).toBe(1_000);
  expect(report.firstTokenMs).toBeCloseTo(1_000 + firstMs, 6);
  expect(report.finishedMs).toBeCloseTo(1_000 + firstMs + stepMs, 3);
});

test("speed scales engine time, and tokens that come due together leave in one write", async () => {
  const time = createVirtualTime();
  const sim = await startSim({ speed: 500, clock: time.clock, scheduler: time.scheduler });
  const { firstMs, stepMs } = expectedTimes(enginePresets["a10g-7b"].parameters, 100);
  const request = openRequest(sim.url + completions, { prompt, max_tokens: 40, stream: true });
  await untilActive(sim, 1);
  time.advance(1);
  expect((await sim.state()).engineMs).toBe(500);
  const due = 1 + Math.floor((500 - firstMs) / stepMs);
  await waitFor(() => request.received().split("\n\n").length - 1 === due, { what: `${due} tokens` });
  expect(due).toBeGreaterThan(10);
  expect(request.pieces()).toHaveLength(1);
  time.advance(10);
  await request.ended;
});

test("requests that run together share their steps", async () => {
  const time = createVirtualTime();
  const sim = await startSim({ speed: 1, clock: time.clock, scheduler: time.scheduler });
  const answers = [1, 2, 3].map((id) => sim.post(completions, { prompt: [id], max_tokens: 10 }));
  await untilActive(sim, 3);
  time.advance(2_000);
  await Promise.all(answers);
  const { stats } = await sim.state();
  expect(stats.generatedTokens).toBe(30);
  // The first request starts a step of its own at once; the others join it from the next one on.
  expect(stats.steps).toBe(11);
});

test("several engines of a process keep their own time-tables on one timer", async () => {
  const time = createVirtualTime();
  const options = { speed: 1, clock: time.clock, scheduler: time.scheduler };
  const fast = await startSim({ ...options, parameters: { stepBaseMs: 10 } });
  const slow = await startSim({ ...options, parameters: { stepBaseMs: 1_000 } });
  const requests = [fast, slow].map((sim) => sim.post(completions, { prompt: [1], max_tokens: 5 }));
  await Promise.all([untilActive(fast, 1), untilActive(slow, 1)]);
  time.advance(100);
  await requests[0];
  expect((await slow.state()).stats.generatedTokens).toBe(0);
  time.advance(6_000);
  await requests[1];
});

test("in real time a first token comes after the time that the model says, scaled", async () => {
  const speed = 4;
  const sim = await startSim({ speed });
  const { firstMs } = expectedTimes(enginePresets["a10g-7b"].parameters, 1_000);
  const times: number[] = [];
  for (let round = 0; round < 5; round++) {
    const startMs = systemClock.nowMs();
    await sim.post(completions, { prompt: Array(1_000).fill(7 + round), max_tokens: 1 });
    times.push(systemClock.nowMs() - startMs);
  }
  // The best of five: others use the machine too. Never early, at most a few timer ticks late.
  expect(Math.min(...times)).toBeGreaterThanOrEqual(firstMs / speed);
  expect(Math.min(...times)).toBeLessThan(firstMs / speed + 60);
});
