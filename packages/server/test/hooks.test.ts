import { silentMeter } from "@espalier/core";
import { maxCustomPolicies } from "@espalier/policies";
import { createRecordingLogger, createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { authTimeoutMs, createIdentityCheck } from "../src/extensions/auth.ts";
import {
  createHookCalls,
  createWarn,
  type Hooks,
  hookTimeoutMs,
  maxPendingHookCalls,
} from "../src/extensions/hooks.ts";
import { checkCustomPolicies } from "../src/extensions/plugins.ts";
import type { ClientRequest } from "../src/request/planned-request.ts";

function start(hooks: readonly Hooks[]) {
  const time = createVirtualTime();
  const outcomes: string[] = [];
  const warn = (what: string, _: string, { outcome }: Readonly<Record<string, unknown>>): void => {
    outcomes.push(`${what} ${outcome}`);
  };
  const calls = createHookCalls(hooks, { scheduler: time.scheduler, meter: silentMeter, warn });
  return { time, outcomes, calls };
}

const request = (): ClientRequest =>
  ({ id: "r", method: "POST", url: "/", headers: {}, raw: { rawHeaders: [], socket: {} } }) as unknown as ClientRequest;
const answer = {
  requestId: "r",
  model: "m",
  status: 200,
  outcome: "answered" as const,
  error: undefined,
  engine: "e",
  attempts: 1,
  durationMs: 1,
};
const ended = { ...answer, promptTokens: undefined, cachedTokens: undefined, completionTokens: undefined };

test("without hooks there is nothing to call", () => {
  expect(start([{}]).calls).toBeUndefined();
  expect(start([{ onAnswer: () => {} }]).calls).toMatchObject({ request: undefined, decided: undefined });
});

test("a request waits for a hook as long as it is allowed to take, and what comes later counts no more", async () => {
  let late: (changes: { headers: Record<string, string> }) => void = () => {};
  const { time, calls, outcomes } = start([{ onRequest: () => new Promise((resolve) => (late = resolve)) }]);
  const asked = request();
  let isDone = false;
  const waiting = calls!.request!(asked)!.then(() => (isDone = true));
  await time.advanceAsync(hookTimeoutMs - 1);
  expect(isDone).toBe(false);
  await time.advanceAsync(1);
  await waiting;
  late({ headers: { "x-late": "1" } });
  await time.advanceAsync(1);
  expect(asked.headers).toEqual({});
  expect(outcomes).toEqual(["hook onRequest timed_out"]);
});

test("one call past the bound is left out, and calls go on when those before have ended", async () => {
  const ends: (() => void)[] = [];
  const { time, calls, outcomes } = start([{ onAnswer: () => new Promise<void>((resolve) => ends.push(resolve)) }]);
  for (let call = 0; call < maxPendingHookCalls; call++) calls!.answered!(ended);
  expect(outcomes).toEqual([]);
  calls!.answered!(ended);
  expect(outcomes).toEqual(["hook onAnswer skipped"]);
  expect(ends).toHaveLength(maxPendingHookCalls);
  for (const end of ends) end();
  await time.advanceAsync(1);
  calls!.answered!(ended);
  expect(ends).toHaveLength(maxPendingHookCalls + 1);
  expect(outcomes).toHaveLength(1);
});

test("auth that hangs refuses the request when its time is over", async () => {
  const { scheduler, advanceAsync } = createVirtualTime();
  const check = createIdentityCheck(() => new Promise(() => {}), { scheduler, warn: () => {} });
  const refused = expect(check(request())).rejects.toMatchObject({ code: "auth_failed" });
  await advanceAsync(authTimeoutMs);
  await refused;
});

test("one policy past the bound is refused, and as many as that are not", () => {
  const policiesOf = (count: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, at) => [`policy_${at}`, { terms: [] }]));
  expect(() => checkCustomPolicies(policiesOf(maxCustomPolicies + 1))).toThrow("33 policies are more than 32");
  expect(() => checkCustomPolicies(policiesOf(maxCustomPolicies))).not.toThrow();
});

test("a failure is logged at once, then with those since, at most every ten seconds", () => {
  const { clock, advance } = createVirtualTime();
  const logger = createRecordingLogger();
  const warn = createWarn(clock, logger);
  for (let failure = 0; failure < 5; failure++) warn("hook a", "failed", {});
  warn("hook b", "failed", {});
  advance(10_000);
  warn("hook a", "failed", {});
  expect(logger.lines.map(({ fields }) => fields.failures)).toEqual([1, 1, 5]);
});
