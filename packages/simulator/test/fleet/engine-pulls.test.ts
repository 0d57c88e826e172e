import { blockChange, type PullLimits } from "@espalier/engine-model";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { type EngineMessage, ModelledEngine, type SimEngine } from "../../src/fleet/sim-engine.ts";
import { nameOf } from "./held-blocks.ts";
import { recordedAnswer } from "./recorded-answer.ts";
import { engineParameters, requestOf } from "./requests.ts";

/** A block of 16 tokens takes 4 ms over the link of a pair, and 2 ms over the whole link. */
const limits: PullLimits = { bytesPerSecond: 8_000, pairBytesPerSecond: 4_000, latencyMs: 10, bytesPerToken: 1 };
const second = 1_000;
/** Ten blocks, of which nine can be cached. */
const prompt = { session: 7, promptTokens: 160, outputTokens: 1 } as const;

function createEngines(count: number, { pull }: { readonly pull?: PullLimits } = { pull: limits }) {
  const time = createVirtualTime();
  const { clock, scheduler } = time;
  const parameters = { ...engineParameters, cpuBlocks: 100, cpuLoadMsPerBlock: 1, cpuWrites: "prompt" } as const;
  const messages: EngineMessage[][] = [];
  const create = (number: number): SimEngine => {
    const options = { number, parameters, clock, scheduler, hasEvents: true, keepsMessages: true, pull };
    const engine = new ModelledEngine(options);
    const reported: EngineMessage[] = [];
    messages.push(reported);
    engine.onMessage((message) => reported.push(message));
    return engine;
  };
  const engines = [create(0), ...Array.from({ length: count - 1 }, (_, at) => create(at + 1))];
  let index = 0;
  const ask = (engine: SimEngine, remote?: SimEngine, shape: Partial<Parameters<typeof requestOf>[0]> = {}) => {
    const request = requestOf({ index: index++, ...prompt, ...shape });
    const answer = recordedAnswer();
    const asked = { request, answer, sentMs: clock.nowMs(), ttftMs: Number.NaN };
    const heard = { ...answer, firstToken: (atMs: number) => Object.assign(asked, { ttftMs: atMs - asked.sentMs }) };
    engine.submit(request, heard, remote && { remote });
    return asked;
  };
  return { time, engines: engines as [SimEngine, SimEngine, ...SimEngine[]], messages, ask };
}

test("a request pulls from the engine that its leg names, and routers hear that both have it in CPU memory", () => {
  const { time, engines, messages, ask } = createEngines(2);
  const [source, other] = engines;
  ask(source);
  time.advance(second);
  const computed = ask(other, undefined, { session: 8 });
  time.advance(second);
  expect(computed.ttftMs).toBeCloseTo(6 + 160 / 8, 6);
  const pulled = ask(other, source);
  time.advance(second);
  // Latency, ten blocks over the pair's link and ten to the GPU, one step over the last token.
  expect(pulled.ttftMs).toBeCloseTo(10 + 10 * 4 + 10 + 6 + 1 / 8, 6);
  expect(source.pullStats()).toMatchObject({ served: 1, sentTokens: 160, sending: 0 });
  expect(other.stats()).toMatchObject({ pulls: 1, pulledTokens: 160 });
  const inCpu = (reported: readonly EngineMessage[]): string[] =>
    reported.flatMap(({ changes: { runs, kinds, ends, words } }) =>
      Array.from({ length: runs }, (_, run) => run)
        .filter((run) => kinds[run] === blockChange.offloaded)
        .flatMap((run) => {
          const from = run === 0 ? 0 : ends[run - 1]!;
          return Array.from({ length: ends[run]! - from }, (_, block) => nameOf(words, from + block));
        }),
    );
  const [atSource, atOther] = messages.map(inCpu);
  expect(atOther).toEqual(expect.arrayContaining(atSource!.slice(0, 10)));
  expect(time.pendingCount).toBe(0);
});

test("pulls of several engines from one share its link, each in its own time", () => {
  const { time, engines, ask } = createEngines(4);
  const [source, ...others] = engines;
  ask(source);
  time.advance(second);
  const pulls = others.map((engine) => ask(engine, source));
  time.advance(second);
  // Three transfers get two thirds of what a pair may have.
  for (const { ttftMs } of pulls) expect(ttftMs).toBeCloseTo(10 + 10 * 6 + 10 + 6 + 1 / 8, 6);
});

test("a pull from an engine that is killed, or is gone already, ends with nothing, and the prompt is computed", () => {
  const { time, engines, ask } = createEngines(2);
  const [source, other] = engines;
  ask(source);
  time.advance(second);
  const cut = ask(other, source);
  time.advance(20);
  source.kill();
  time.advance(second);
  expect(cut.ttftMs).toBeCloseTo(20 + 6 + 160 / 8, 6);
  const refused = ask(other, source, { session: 9 });
  time.advance(second);
  expect(refused.ttftMs).toBeCloseTo(10 + 6 + 160 / 8, 6);
  expect(other.stats()).toMatchObject({ pulls: 0, emptyPulls: 2, pulling: 0 });
  expect(time.pendingCount).toBe(0);
  // Its next process has an empty memory, and serves what it has then.
  source.start();
  ask(source, undefined, { session: 10 });
  time.advance(second);
  ask(other, source, { session: 10 });
  time.advance(second);
  expect(other.stats()).toMatchObject({ pulls: 1, emptyPulls: 2 });
});

test.each(["killed", "aborted"])("the source gives up a pull whose request was %s", (how) => {
  const { time, engines, ask } = createEngines(2);
  const [source, other] = engines;
  ask(source);
  time.advance(second);
  const { request, answer } = ask(other, source);
  time.advance(20);
  expect(source.pullStats()).toMatchObject({ sending: 1 });
  if (how === "killed") other.kill();
  else other.abort(request);
  expect(source.pullStats()).toMatchObject({ sending: 0, cancelled: 1, served: 0 });
  expect(time.pendingCount).toBe(0);
  expect(answer.heard).toEqual(how === "killed" ? ["lost"] : []);
});

test("an engine pulls neither from itself nor from engines that serve no pulls", () => {
  const { time, engines, ask } = createEngines(2);
  const [, other] = engines;
  const alone = ask(other, other);
  time.advance(second);
  const without = createEngines(1, {});
  const [deaf] = without.engines;
  const mixed = ask(other, deaf, { session: 8 });
  time.advance(second);
  expect(deaf.pullStats()).toBeUndefined();
  for (const { ttftMs } of [alone, mixed]) expect(ttftMs).toBeCloseTo(6 + 160 / 8, 6);
  expect(other.stats()).toMatchObject({ pulls: 0, emptyPulls: 0 });
});
