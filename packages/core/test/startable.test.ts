import { expect, test } from "vitest";
import { type Startable, startTogether } from "../src/index.ts";

function recorded(name: string, log: string[], failing = false): Startable {
  return {
    async start() {
      log.push(`start ${name}`);
      if (failing) throw new Error(`${name} cannot start`);
    },
    async stop() {
      log.push(`stop ${name}`);
    },
  };
}

test("parts start in order and stop in reverse", async () => {
  const log: string[] = [];
  const whole = startTogether([recorded("a", log), recorded("b", log)]);
  await whole.start();
  await whole.stop();
  expect(log).toEqual(["start a", "start b", "stop b", "stop a"]);
});

test("when a part fails to start, it and the ones before it are stopped and the error is thrown", async () => {
  const log: string[] = [];
  const whole = startTogether([recorded("a", log), recorded("b", log, true), recorded("c", log)]);
  await expect(whole.start()).rejects.toThrow("b cannot start");
  expect(log).toEqual(["start a", "start b", "stop b", "stop a"]);
});

test("stopping twice stops each part once", async () => {
  const log: string[] = [];
  const whole = startTogether([recorded("a", log)]);
  await whole.start();
  await whole.stop();
  await whole.stop();
  expect(log).toEqual(["start a", "stop a"]);
});
