import { expect, test } from "vitest";
import { AnswerPace } from "../../src/work/answer-pace.ts";

test("the first answer is believed; the first token is not of its pace", () => {
  const pace = new AnswerPace();
  expect(pace.msPerToken).toBe(0);
  pace.observe(101, 2_000);
  expect(pace.msPerToken).toBe(20);
});

test("it is the mean, of later answers more, and those that are far off move it no more than others", () => {
  const pace = new AnswerPace();
  pace.observe(101, 2_000);
  pace.observe(101, 3_000);
  expect(pace.msPerToken).toBeCloseTo((0.98 * 20 + 30) / 1.98, 9);
  expect(pace.sums.weight).toBeCloseTo(1.98, 9);
  const one = new AnswerPace();
  for (let at = 0; at < 40; at++) one.observe(101, 2_000);
  one.observe(2, 1e9);
  expect(one.msPerToken).toBeLessThan(20 * 1.08);
});

test.each([
  ["one token", 1, 100],
  ["none", 0, 100],
  ["tokens that nobody counted", Number.NaN, 100],
  ["a first token that nobody saw", 10, Number.NaN],
  ["a time that runs backwards", 10, -1],
])("an answer of %s tells nothing", (_, tokens, elapsedMs) => {
  const pace = new AnswerPace();
  pace.observe(11, 200);
  pace.observe(tokens, elapsedMs);
  expect(pace.msPerToken).toBe(20);
});
