import { expect, test } from "vitest";
import { createEventFaults } from "../../src/fleet/kv-events.ts";
import { createEngineRig } from "./engine-rig.ts";
import { recordedAnswer } from "./recorded-answer.ts";
import { requestOf } from "./requests.ts";

function createRig() {
  const { engine, time, messages } = createEngineRig();
  const faults = createEventFaults([engine]);
  let sent = 0;
  const answer = (): void => {
    engine.submit(requestOf({ index: sent++ }), recordedAnswer());
    time.advance(1_000);
  };
  const lost = (): number[] =>
    messages.map(({ sequence }) => sequence).filter((sequence) => faults.isLost(0, sequence));
  return { engine, messages, faults, answer, lost };
}

test("the next messages are lost, as many as were asked for together, and no others", () => {
  const { messages, faults, answer, lost } = createRig();
  answer();
  const from = messages.length;
  faults.lose(0, 1);
  faults.lose(0, 1);
  for (let requests = 0; requests < 3; requests++) answer();
  expect(messages.length).toBeGreaterThan(from + 2);
  expect(lost()).toEqual([from, from + 1]);
});

test("what was lost of an earlier epoch does not count in the next one", () => {
  const { engine, messages, faults, answer, lost } = createRig();
  faults.lose(0, 1);
  answer();
  expect(lost()).toEqual([0]);
  engine.kill();
  engine.start();
  const before = messages.length;
  answer();
  expect(messages.slice(before).map(({ sequence }) => faults.isLost(0, sequence))).not.toContain(true);
});

test("healed, nothing more is lost, though what was stays so", () => {
  const { faults, answer, lost } = createRig();
  faults.lose(0, 1);
  answer();
  faults.lose(0, 100);
  faults.heal();
  answer();
  expect(lost()).toEqual([0]);
});

test("engines tell what was missed until that is switched off", () => {
  const { faults } = createRig();
  expect(faults.canReplay(0)).toBe(true);
  faults.setReplay(0, false);
  expect(faults.canReplay(0)).toBe(false);
});
