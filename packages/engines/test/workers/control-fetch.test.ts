import { EspalierError, type HttpClient } from "@espalier/core";
import { expect, test } from "vitest";
import { controlFetch, type FetchOutcome } from "../../src/workers/control-fetch.ts";

// A probe whose time passes while the event loop is held up times out, although the engine's answer may lie in the socket:
// two large bodies had engines marked down. What counts is how late the request's own looks at the clock come.

const timeoutMs = 800;

/** How a request ends that has no answer after 800 ms, when looks at the clock come at these moments and no others. */
async function outcomeOf(lookedMs: readonly number[], endedMs: number): Promise<FetchOutcome> {
  let nowMs = 0;
  let look: (() => void) | undefined;
  let fail: (error: Error) => void = () => {};
  const http: HttpClient = () => new Promise((_, reject) => (fail = reject));
  const fetching = controlFetch(
    {
      http,
      clock: { nowMs: () => nowMs, wallMs: () => nowMs },
      scheduler: {
        after: () => () => {},
        every(periodMs, task) {
          expect(periodMs).toBe(100);
          look = task;
          return () => {
            look = undefined;
          };
        },
      },
    },
    { url: "http://e/health", timeoutMs, maxBytes: 10 },
  );
  for (const atMs of lookedMs) {
    nowMs = atMs;
    look?.();
  }
  nowMs = endedMs;
  fail(new EspalierError("upstream_timeout"));
  const { outcome } = await fetching;
  expect(look).toBeUndefined();
  return outcome;
}

const onTime = [100, 200, 300, 400, 500, 600, 700];

test.each<readonly [string, readonly number[], number, FetchOutcome]>([
  ["while there is time", onTime, 800, "timeout"],
  ["with one turn of 199 ms too many", [100, 200, 499, 599, 699], 800, "timeout"],
  ["with one turn of 200 ms too many", [100, 200, 500, 600, 700], 800, "late"],
  ["with two turns of 100 ms too many", [100, 300, 400, 600, 700], 800, "late"],
  ["which is noticed 399 ms late", onTime, 1_199, "timeout"],
  ["which is noticed 400 ms late", onTime, 1_200, "late"],
])("a timeout %s", async (_, lookedMs, endedMs, outcome) => {
  expect(await outcomeOf(lookedMs, endedMs)).toBe(outcome);
});

test("only timeouts are blamed on a late loop, and an answer that came counts", async () => {
  let nowMs = 0;
  const ports = {
    clock: { nowMs: () => nowMs, wallMs: () => nowMs },
    scheduler: { after: () => () => {}, every: () => () => {} },
  };
  const request = { url: "http://e/health", timeoutMs, maxBytes: 10 };
  const refused: HttpClient = async () => {
    nowMs += 5_000;
    throw new EspalierError("upstream_connect_failed");
  };
  const answered: HttpClient = async () => {
    nowMs += 5_000;
    return { status: 503, headers: {}, body: "" };
  };
  expect((await controlFetch({ ...ports, http: refused }, request)).outcome).toBe("unreachable");
  expect((await controlFetch({ ...ports, http: answered }, request)).outcome).toBe("status");
});
