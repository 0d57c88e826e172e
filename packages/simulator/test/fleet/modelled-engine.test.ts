import { blockChange } from "@espalier/engine-model";
import { expect, test } from "vitest";
import { createEngineRig } from "./engine-rig.ts";
import { heldAfter, nameOf } from "./held-blocks.ts";
import { recordedAnswer } from "./recorded-answer.ts";
import { requestOf } from "./requests.ts";

const second = 1_000;

test("an answer comes token by token, and its end tells what was cached", () => {
  const { time, engine } = createEngineRig();
  const first = recordedAnswer();
  expect(engine.submit(requestOf({ index: 0 }), first)).toBe(true);
  expect(first.heard).toEqual([]);
  time.advance(second);
  expect(first.heard).toEqual(["first", "finished"]);
  expect(first.tokens).toBe(16);
  expect(first.cachedTokens).toBe(0);
  const second_ = recordedAnswer();
  engine.submit(requestOf({ index: 1, session: 0 }), second_);
  time.advance(second);
  // The last token of a prompt is always computed, and with it its block.
  expect(second_.cachedTokens).toBe(144);
});

test("the first token comes after the prompt's computation, by the engine's own clock", () => {
  const { time, engine } = createEngineRig();
  let atMs = Number.NaN;
  time.advance(123.4);
  engine.submit(requestOf({ index: 0 }), { ...recordedAnswer(), firstToken: (timeMs) => (atMs = timeMs) });
  time.advance(second);
  expect(atMs).toBeCloseTo(123.4 + 6 + 160 / 8, 6);
});

test("messages are numbered from 0 and tell the blocks of prompt and answer, once", () => {
  const { time, engine, messages } = createEngineRig();
  for (let index = 0; index < 5; index++) {
    engine.submit(requestOf({ index, sharedTokens: 64 }), recordedAnswer());
    time.advance(second);
  }
  expect(messages.map(({ sequence }) => sequence)).toEqual(messages.map((_, at) => at));
  expect(engine.messages).toEqual(messages);
  expect(engine.firstReplayed).toBe(0);
  const names = messages.flatMap(({ changes }) =>
    Array.from({ length: changes.words.length / 2 }, (_, block) => nameOf(changes.words, block)),
  );
  expect(new Set(names).size).toBe(names.length);
  // The last token of an answer is never computed, so that its block is not full: 4 shared blocks and 6 of each prompt.
  expect(names).toHaveLength(4 + 5 * 6);
  expect(new Set(messages.map(({ checksum }) => checksum)).size).toBe(messages.length);
  const times = messages.map(({ timestampUs }) => timestampUs);
  expect([...times].sort((one, other) => one - other)).toEqual(times);
});

test("blocks that are evicted are told as removed", () => {
  const { time, engine, messages } = createEngineRig({ parameters: { blockCount: 40 } });
  for (let index = 0; index < 10; index++) {
    engine.submit(requestOf({ index }), recordedAnswer());
    time.advance(second);
  }
  const kinds = messages.flatMap(({ changes }) => [...changes.kinds.subarray(0, changes.runs)]);
  expect(kinds).toContain(blockChange.removed);
  expect(heldAfter(messages)).toHaveLength(engine.stats().cachedBlocks);
});

test("an engine that nobody listens to makes no messages, and one that keeps none keeps none", () => {
  const deaf = createEngineRig({ hasEvents: false });
  const forgetful = createEngineRig({ keepsMessages: false });
  for (const { engine, time } of [deaf, forgetful]) {
    engine.submit(requestOf({ index: 0 }), recordedAnswer());
    time.advance(second);
  }
  expect(deaf.messages).toHaveLength(0);
  expect(forgetful.messages.length).toBeGreaterThan(0);
  expect(forgetful.engine.messages).toHaveLength(0);
});

test("an aborted answer is heard of no more, and the engine is free of it", () => {
  const { time, engine } = createEngineRig();
  const answers = [recordedAnswer(), recordedAnswer()];
  for (const [index, answer] of answers.entries()) engine.submit(requestOf({ index, outputTokens: 64 }), answer);
  time.advance(100);
  engine.abort(requestOf({ index: 0 }));
  engine.abort(requestOf({ index: 7 }));
  time.advance(5 * second);
  expect(answers[0]!.heard).toEqual(["first"]);
  expect(answers[1]!.heard).toEqual(["first", "finished"]);
  expect(engine.stats()).toMatchObject({ running: 0, waiting: 0 });
  expect(time.pendingCount).toBe(0);
});

test("an aborted request that is alone leaves an idle engine without a timer", () => {
  const { time, engine } = createEngineRig();
  engine.submit(requestOf({ index: 0 }), recordedAnswer());
  engine.abort(requestOf({ index: 0 }));
  time.advance(second);
  expect(time.pendingCount).toBe(0);
  expect(engine.stats().running).toBe(0);
});

test("a killed engine loses its answers, once, refuses others, and says nothing more", () => {
  const { time, engine, messages } = createEngineRig();
  const answers = Array.from({ length: 3 }, (_, index) => {
    const answer = recordedAnswer();
    engine.submit(requestOf({ index, outputTokens: 200 }), answer);
    return answer;
  });
  let epochs = 0;
  engine.onEpoch(() => epochs++);
  time.advance(200);
  const messagesBefore = messages.length;
  engine.kill();
  engine.kill();
  expect(answers.map(({ heard }) => heard.join())).toEqual(Array(3).fill("first,lost"));
  expect(epochs).toBe(1);
  expect(engine.isUp).toBe(false);
  expect(engine.submit(requestOf({ index: 9 }), recordedAnswer())).toBe(false);
  time.advance(5 * second);
  expect(messages).toHaveLength(messagesBefore);
  expect(answers.map(({ heard }) => heard.length)).toEqual([2, 2, 2]);
  expect(time.pendingCount).toBe(0);
});

test("an engine that is gone has no load: samples of the fleet must not count what it once ran", () => {
  // The model of the old process was asked, in which the lost requests ran on for ever.
  const { time, engine } = createEngineRig();
  engine.submit(requestOf({ index: 0, outputTokens: 500 }), recordedAnswer());
  time.advance(100);
  expect(engine.stats().running).toBe(1);
  engine.kill();
  expect(engine.stats()).toMatchObject({ running: 0, waiting: 0, kvUse: 0, cachedBlocks: 0 });
});

test("a new epoch begins empty, with messages from 0 that are told apart from the old ones", () => {
  const { time, engine, messages } = createEngineRig();
  engine.submit(requestOf({ index: 0 }), recordedAnswer());
  time.advance(second);
  const old = [...messages];
  engine.kill();
  engine.start();
  engine.start();
  expect(engine.epochs).toBe(2);
  expect(engine.messages).toHaveLength(0);
  const answer = recordedAnswer();
  expect(engine.submit(requestOf({ index: 1, session: 0 }), answer)).toBe(true);
  time.advance(second);
  expect(answer.cachedTokens).toBe(0);
  const anew = messages.slice(old.length);
  expect(anew.map(({ sequence }) => sequence)).toEqual(old.map(({ sequence }) => sequence));
  expect(heldAfter(anew)).toEqual(heldAfter(old));
  for (const [at, { checksum }] of anew.entries()) expect(checksum).not.toBe(old[at]!.checksum);
});

test("only the last 10,000 messages are told again", () => {
  const { time, engine } = createEngineRig({
    parameters: { stepBaseMs: 1, prefillMsPerToken: 0, decodeMsPerSequence: 0 },
  });
  for (let index = 0; engine.messages.length < 10_002; index++) {
    engine.submit(requestOf({ index, promptTokens: 17, outputTokens: 1 }), recordedAnswer());
    time.advance(2);
    if (engine.messages.length === 10_000) expect(engine.firstReplayed).toBe(0);
  }
  expect(engine.firstReplayed).toBe(2);
});

test("listeners that left hear nothing", () => {
  const { time, engine } = createEngineRig();
  let messages = 0;
  let epochs = 0;
  const ends = [engine.onMessage(() => messages++), engine.onEpoch(() => epochs++)];
  for (const end of ends) end();
  engine.submit(requestOf({ index: 0 }), recordedAnswer());
  time.advance(second);
  engine.kill();
  expect([messages, epochs]).toEqual([0, 0]);
});

test("an engine of other blocks than the simulator's is refused", () => {
  expect(() => createEngineRig({ parameters: { blockSize: 32 } })).toThrow(RangeError);
});

test("a slow engine takes so many times as long, in its next epoch too, until it is as at first", () => {
  const { time, engine } = createEngineRig();
  let firstMs = Number.NaN;
  const answer = (index: number): number => {
    const sentMs = time.clock.nowMs();
    engine.submit(requestOf({ index }), { ...recordedAnswer(), firstToken: (timeMs) => (firstMs = timeMs - sentMs) });
    time.advance(5 * second);
    return firstMs;
  };
  expect(answer(0)).toBeCloseTo(26, 6);
  engine.slow(5);
  expect(answer(1)).toBeCloseTo(130, 6);
  engine.kill();
  engine.start();
  expect(answer(2)).toBeCloseTo(130, 6);
  expect(() => engine.slow(0)).toThrow(RangeError);
  engine.kill();
  engine.slow(1);
  engine.start();
  expect(answer(3)).toBeCloseTo(26, 6);
});

test("an engine that becomes slow in the middle of an answer tells its end when it comes", () => {
  const { time, engine } = createEngineRig();
  const answer = recordedAnswer();
  engine.submit(requestOf({ index: 0, outputTokens: 101 }), answer);
  // 26 ms for the prompt, 6.35 for each further token.
  time.advance(26 + 50 * 6.35 + 1);
  engine.slow(10);
  time.advance(5.35 + 49 * 63.5 - 1);
  expect(answer.heard).toEqual(["first"]);
  time.advance(2);
  expect(answer.heard).toEqual(["first", "finished"]);
});
