import { expect, onTestFinished, test, vi } from "vitest";
import { abortOnSignal } from "../src/signals.ts";

// The second one ended with 1, as if the command had failed.
test.each([
  ["SIGINT", 130],
  ["SIGTERM", 143],
] as const)("the first %s asks a command to end, the second one ends it as a shell would report it", (name, code) => {
  const before = new Set((["SIGINT", "SIGTERM"] as const).flatMap((each) => process.listeners(each)));
  const exit = vi.spyOn(process, "exit").mockImplementation((() => {}) as typeof process.exit);
  onTestFinished(() => {
    vi.restoreAllMocks();
    for (const signal of ["SIGINT", "SIGTERM"] as const) {
      for (const listener of process.listeners(signal)) if (!before.has(listener)) process.off(signal, listener);
    }
  });
  const signal = abortOnSignal();
  const send = (): void => {
    for (const listener of process.listeners(name)) if (!before.has(listener)) listener(name);
  };
  send();
  expect([signal.aborted, exit.mock.calls]).toEqual([true, []]);
  send();
  expect(exit.mock.calls).toEqual([[code]]);
});
