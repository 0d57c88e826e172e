import { systemClock, systemCpuMs } from "@espalier/core";
import { createRecordingLogger } from "@espalier/testing";
import { expect, test } from "vitest";
import { PauseReport } from "../../src/membership/process-time.ts";

function createReport() {
  const logger = createRecordingLogger();
  const state = { cpuMs: 5_000, paused: 0 };
  const report = new PauseReport({ cpuMs: () => state.cpuMs, paused: () => void state.paused++, logger });
  return {
    state,
    /** A tick after so much lost time, in which so much was computed; the lines that it is worth. */
    tick(lostMs: number, spentMs: number): readonly string[] {
      const before = logger.lines.length;
      state.cpuMs += spentMs;
      report.tick(lostMs);
      return logger.lines.slice(before).map(({ message }) => message.split(";")[0]!);
    },
  };
}

/** An event loop that hung on its own work was logged as a process that had been stopped: people looked at the machine. */
test("lost time is the process's own where it computed in it, and of whoever stopped it where it did not", () => {
  const { tick, state } = createReport();
  expect(tick(1_400, 1_390)).toEqual(["event loop busy for 1400 ms"]);
  expect(tick(5_000.4, 3)).toEqual(["process paused for 5000 ms: stopped or without CPU"]);
  expect(tick(2_000, 1_000)).toEqual(["event loop busy for 2000 ms"]);
  expect(tick(2_000, 999)).toEqual(["process paused for 2000 ms: stopped or without CPU"]);
  expect(state.paused).toBe(4);
});

test("work of earlier ticks does not count, and what is short is worth no line", () => {
  const { tick, state } = createReport();
  for (let at = 0; at < 20; at++) expect(tick(999, 900)).toEqual([]);
  expect(tick(1_000, 0)).toEqual(["process paused for 1000 ms: stopped or without CPU"]);
  expect(state.paused).toBe(1);
});

test("the system's own figure grows with what is computed", () => {
  const beforeMs = systemCpuMs();
  const endMs = systemClock.nowMs() + 10_000;
  while (systemCpuMs() - beforeMs < 20) if (systemClock.nowMs() > endMs) throw new Error("no CPU time is counted");
  expect(systemCpuMs() - beforeMs).toBeGreaterThanOrEqual(20);
});
