import { createSeededRandom } from "@espalier/core";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { createClusterIp, type FrontOutcome } from "../../src/fleet/front.ts";
import { ModelledEngine } from "../../src/fleet/sim-engine.ts";
import { engineParameters, requestOf } from "./requests.ts";

const second = 1_000;

function createRig(count = 8) {
  const time = createVirtualTime();
  const { clock, scheduler } = time;
  const engines = Array.from(
    { length: count },
    (_, number) =>
      new ModelledEngine({
        ...{ number, parameters: engineParameters, clock, scheduler, hasEvents: false, keepsMessages: false },
      }),
  );
  const service = createClusterIp({ engines, clock, random: createSeededRandom(5) });
  const outcomes: FrontOutcome[] = [];
  let sent = 0;
  return {
    ...{ time, engines, outcomes },
    send: (outputTokens = 16) =>
      service.handle(requestOf({ index: sent++, outputTokens }), (outcome) => outcomes.push(outcome)),
  };
}

test("one request after the other keeps to one connection, and so to one engine", () => {
  const { time, outcomes, send } = createRig();
  for (let sent = 0; sent < 20; sent++) {
    send();
    time.advance(second);
  }
  expect(new Set(outcomes.map(({ engine }) => engine)).size).toBe(1);
  expect(outcomes.every(({ error, isSpill }) => error === undefined && !isSpill)).toBe(true);
});

test("requests at one time need connections of their own, to engines by chance", () => {
  const { time, outcomes, send } = createRig();
  for (let sent = 0; sent < 40; sent++) send();
  time.advance(10 * second);
  const perEngine = Array.from({ length: 8 }, (_, engine) => outcomes.filter((one) => one.engine === engine).length);
  expect(perEngine.filter((requests) => requests > 0).length).toBeGreaterThan(5);
  expect(Math.max(...perEngine)).toBeGreaterThan(5);
  // They are kept: what comes next goes where the connection lies that became idle last.
  const last = outcomes.at(-1)!.engine;
  send();
  time.advance(second);
  expect(outcomes.at(-1)!.engine).toBe(last);
});

test("connections to an engine that went away are not used again, nor are those to its earlier epoch", () => {
  // A connection of the old process was taken for one of the new one.
  const { time, engines, outcomes, send } = createRig(2);
  for (let sent = 0; sent < 16; sent++) send();
  time.advance(5 * second);
  const last = outcomes.at(-1)!.engine;
  engines[last]!.kill();
  engines[last]!.start();
  send();
  time.advance(second);
  expect(outcomes.at(-1)).toMatchObject({ engine: 1 - last, error: undefined });
  engines[1 - last]!.kill();
  send();
  time.advance(second);
  expect(outcomes.at(-1)).toMatchObject({ engine: last, error: undefined });
});

test("a request in an engine that goes away fails, and one that finds no engine too", () => {
  const { time, engines, outcomes, send } = createRig(1);
  send(500);
  time.advance(100);
  engines[0]!.kill();
  send();
  time.advance(second);
  expect(outcomes.map(({ error }) => error)).toEqual(["the engine went away", "no engine is available"]);
  expect(outcomes[0]!.firstTokenMs).toBeCloseTo(26, 6);
  expect(outcomes.map(({ engine }) => engine)).toEqual([-1, -1]);
  expect(outcomes[1]!.firstTokenMs).toBeNaN();
});
