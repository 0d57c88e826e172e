import { createVirtualTime, randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createTargetLoad, type LoadTicket, type TargetLoad } from "../../src/workers/index.ts";

const { clock } = createVirtualTime();

interface Totals {
  readonly inFlight: number;
  readonly pendingPrefillTokens: number;
  readonly decodeTokens: number;
  readonly outstandingOutputTokens: number;
}

const totalsOf = ({ inFlight, pendingPrefillTokens, decodeTokens, outstandingOutputTokens }: TargetLoad): Totals => ({
  inFlight,
  pendingPrefillTokens,
  decodeTokens,
  outstandingOutputTokens,
});

const totals = (
  inFlight: number,
  pendingPrefillTokens: number,
  decodeTokens: number,
  outstandingOutputTokens: number,
): Totals => ({ inFlight, pendingPrefillTokens, decodeTokens, outstandingOutputTokens });

test("a request moves from pending prefill to decoding to nothing", () => {
  const load = createTargetLoad({ clock });
  const ticket = load.begin({ promptTokens: 100, expectedOutputTokens: 30 });
  expect(totalsOf(load)).toEqual(totals(1, 100, 0, 30));
  ticket.firstToken();
  expect(totalsOf(load)).toEqual(totals(1, 0, 100, 30));
  ticket.progress(12);
  expect(totalsOf(load)).toEqual(totals(1, 0, 112, 18));
  ticket.end();
  expect(totalsOf(load)).toEqual(totals(0, 0, 0, 0));
});

test("an answer is under way from its first token to its end, and counts once", () => {
  const load = createTargetLoad({ clock });
  const [first, second] = [load, load].map((each) => each.begin({ promptTokens: 10, expectedOutputTokens: 5 }));
  expect(load.answers).toBe(0);
  first!.firstToken();
  first!.progress(2);
  expect(load.answers).toBe(1);
  second!.end();
  expect(load.answers).toBe(1);
  first!.end();
  expect([load.answers, load.inFlight]).toEqual([0, 0]);
});

test("what a target holds is not pending, but it is context once the answer begins", () => {
  const load = createTargetLoad({ clock });
  const ticket = load.begin({ promptTokens: 100, uncachedTokens: 30, expectedOutputTokens: 0 });
  expect(totalsOf(load)).toEqual(totals(1, 30, 0, 0));
  const wrong = load.begin({ promptTokens: 10, uncachedTokens: 50, expectedOutputTokens: 0 });
  expect(totalsOf(load)).toEqual(totals(2, 40, 0, 0));
  ticket.firstToken();
  expect(totalsOf(load)).toEqual(totals(2, 10, 100, 0));
  wrong.end();
  ticket.end();
  expect(totalsOf(load)).toEqual(totals(0, 0, 0, 0));
});

test("blocks of a prompt count from dispatch to the end of the request, whatever it reaches, where account is kept", () => {
  const load = createTargetLoad({ clock });
  const activeBlocks = { chain: Uint32Array.of(1, 2, 3, 4), blockCount: 2, blockSize: 16 };
  const size = { promptTokens: 40, expectedOutputTokens: 5 };
  load.begin(size);
  expect([load.activeTokens, load.newActiveTokens(activeBlocks)]).toEqual([0, 32]);
  const tickets = [load.begin({ ...size, activeBlocks }), load.begin({ ...size, activeBlocks })];
  expect([load.activeTokens, load.newActiveTokens(activeBlocks)]).toEqual([32, 0]);
  tickets[0]!.progress(3);
  tickets[0]!.end();
  tickets[0]!.end();
  expect(load.activeTokens).toBe(32);
  tickets[1]!.end();
  expect([load.activeTokens, load.newActiveTokens(activeBlocks)]).toEqual([0, 32]);
});

test("an answer longer than expected leaves nothing outstanding, not less than nothing", () => {
  const load = createTargetLoad({ clock });
  const ticket = load.begin({ promptTokens: 10, expectedOutputTokens: 5 });
  ticket.progress(4);
  ticket.progress(4);
  expect(totalsOf(load)).toEqual(totals(1, 0, 18, 0));
  ticket.end();
  expect(totalsOf(load)).toEqual(totals(0, 0, 0, 0));
});

test("progress without a first token implies it", () => {
  const load = createTargetLoad({ clock });
  load.begin({ promptTokens: 7, expectedOutputTokens: 0 }).progress(1);
  expect(totalsOf(load)).toEqual(totals(1, 0, 8, 0));
});

test("every call may be repeated", () => {
  const load = createTargetLoad({ clock });
  const other = load.begin({ promptTokens: 1, expectedOutputTokens: 1 });
  const ticket = load.begin({ promptTokens: 50, expectedOutputTokens: 9 });
  ticket.firstToken();
  ticket.firstToken();
  expect(totalsOf(load)).toEqual(totals(2, 1, 50, 10));
  ticket.end();
  ticket.end();
  ticket.firstToken();
  ticket.progress(5);
  expect(totalsOf(load)).toEqual(totals(1, 1, 0, 1));
  other.end();
});

test("ending before the first token takes the prompt back", () => {
  const load = createTargetLoad({ clock });
  load.begin({ promptTokens: 50, expectedOutputTokens: 9 }).end();
  expect(totalsOf(load)).toEqual(totals(0, 0, 0, 0));
});

test.each([
  ["NaN", Number.NaN, 0],
  ["negative", -5, 0],
  ["a fraction", 2.9, 2],
  ["infinite", Number.POSITIVE_INFINITY, 2 ** 31],
  ["one past the bound", 2 ** 31 + 1, 2 ** 31],
])("a count that is %s is made usable", (_, given, counted) => {
  const load = createTargetLoad({ clock });
  const ticket = load.begin({ promptTokens: given, expectedOutputTokens: given });
  expect(totalsOf(load)).toEqual(totals(1, counted, 0, counted));
  ticket.progress(given);
  expect(totalsOf(load)).toEqual(totals(1, 0, 2 * counted, 0));
  ticket.end();
  expect(totalsOf(load)).toEqual(totals(0, 0, 0, 0));
});

test("a hundred thousand of the largest requests still sum exactly", () => {
  const load = createTargetLoad({ clock });
  const tickets: LoadTicket[] = [];
  for (let i = 0; i < 100_000; i++) {
    tickets.push(load.begin({ promptTokens: 2 ** 31 - (i % 7), expectedOutputTokens: 2 ** 31 }));
  }
  for (const ticket of tickets) ticket.progress(2 ** 31);
  for (const ticket of tickets) ticket.end();
  expect(totalsOf(load)).toEqual(totals(0, 0, 0, 0));
});

test("every begun and ended request is told of once, after the numbers have changed", () => {
  const reported: string[] = [];
  const load: TargetLoad = createTargetLoad({
    clock,
    onInFlight: (change) => reported.push(`${change} -> ${load.inFlight}`),
  });
  const first = load.begin({ promptTokens: 1, expectedOutputTokens: 0 });
  const second = load.begin({ promptTokens: 1, expectedOutputTokens: 0 });
  first.end();
  first.end();
  second.end();
  expect(reported).toEqual(["1 -> 1", "1 -> 2", "-1 -> 1", "-1 -> 0"]);
});

test("every change of a number is told of after it, and nothing else is", () => {
  const reported: (readonly number[])[] = [];
  const load: TargetLoad = createTargetLoad({
    clock,
    onChange: () => reported.push([load.inFlight, load.decodeTokens]),
  });
  const ticket = load.begin({ promptTokens: 5, expectedOutputTokens: 2 });
  ticket.firstToken();
  ticket.firstToken();
  ticket.progress(3);
  ticket.end();
  ticket.end();
  ticket.progress(1);
  expect(reported).toEqual([
    [1, 0],
    [1, 5],
    [1, 8],
    [0, 0],
  ]);
});

describe("work", () => {
  const never = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY] as const;
  const begun = () => {
    const time = createVirtualTime();
    const load = createTargetLoad({ clock: time.clock });
    const startMs = time.clock.nowMs();
    const begin = (workMs: number) => load.begin({ promptTokens: 100, expectedOutputTokens: 5, workMs });
    /** Milliseconds that are pending, since when they are, and when some last were computed. */
    const times = () => [load.pendingWorkMs, load.pendingSinceMs - startMs, load.computedMs - startMs];
    return { time, load, begin, times };
  };

  test("is pending from its first request on until the last one's first token", () => {
    const { time, begin, times } = begun();
    expect(times()).toEqual([0, ...never]);
    time.advance(5);
    const first = begin(300);
    time.advance(10);
    const second = begin(40);
    expect(times()).toEqual([340, 5, Number.NEGATIVE_INFINITY]);
    time.advance(10);
    first.firstToken();
    expect(times()).toEqual([40, 5, 25]);
    time.advance(10);
    second.progress(1);
    expect(times()).toEqual([0, Number.POSITIVE_INFINITY, 35]);
    time.advance(10);
    const third = begin(7);
    first.end();
    second.end();
    expect(times()).toEqual([7, 45, 35]);
    third.end();
  });

  test("of a request that ends before its first token is taken back, and was not computed", () => {
    const { time, begin, times } = begun();
    const stays = begin(20);
    const goes = begin(300);
    time.advance(50);
    goes.end();
    goes.firstToken();
    expect(times()).toEqual([20, 0, Number.NEGATIVE_INFINITY]);
    stays.end();
    expect(times()).toEqual([0, ...never]);
  });

  test("is not computed by the first token of a request that has none here", () => {
    const { time, begin, times } = begun();
    begin(20);
    time.advance(50);
    begin(0).firstToken();
    expect(times()).toEqual([20, 0, Number.NEGATIVE_INFINITY]);
  });

  test.each([
    ["NaN", Number.NaN, 0],
    ["negative", -3, 0],
    ["a fraction", 7.9, 7],
    ["one past the bound", 2 ** 31 + 1, 2 ** 31],
  ])("that is %s is made usable", (_, given, counted) => {
    const { begin, times } = begun();
    const ticket = begin(given);
    expect(times()[0]).toBe(counted);
    ticket.end();
    expect(times()[0]).toBe(0);
  });
});

/** The obvious way: remember every request and add up on demand. */
interface NaiveRequest {
  readonly prompt: number;
  readonly expected: number;
  generated: number;
  phase: "pending" | "decoding" | "ended";
}

const step = fc.oneof(
  fc.record({ kind: fc.constant("begin" as const), prompt: fc.nat(100_000), expected: fc.nat(5_000) }),
  fc.record({ kind: fc.constant("first" as const), which: fc.nat() }),
  fc.record({ kind: fc.constant("progress" as const), which: fc.nat(), tokens: fc.nat(4_000) }),
  fc.record({ kind: fc.constant("end" as const), which: fc.nat() }),
);

function naiveTotals(requests: readonly NaiveRequest[]): Totals {
  const live = requests.filter(({ phase }) => phase !== "ended");
  const sum = (read: (request: NaiveRequest) => number): number =>
    live.reduce((total, request) => total + read(request), 0);
  return totals(
    live.length,
    sum(({ phase, prompt }) => (phase === "pending" ? prompt : 0)),
    sum(({ phase, prompt, generated }) => (phase === "decoding" ? prompt + generated : 0)),
    sum(({ expected, generated }) => Math.max(0, expected - generated)),
  );
}

test("any interleaving of any calls gives the totals of the naive account, and zero at the end", () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
      const load = createTargetLoad({ clock });
      const tickets: LoadTicket[] = [];
      const naive: NaiveRequest[] = [];
      for (const taken of steps) {
        if (taken.kind === "begin") {
          tickets.push(load.begin({ promptTokens: taken.prompt, expectedOutputTokens: taken.expected }));
          naive.push({ prompt: taken.prompt, expected: taken.expected, generated: 0, phase: "pending" });
        } else if (tickets.length > 0) {
          const ticket = tickets[taken.which % tickets.length]!;
          const request = naive[taken.which % tickets.length]!;
          const isLive = request.phase !== "ended";
          if (taken.kind === "first") ticket.firstToken();
          else if (taken.kind === "progress") ticket.progress(taken.tokens);
          else ticket.end();
          if (isLive) request.phase = taken.kind === "end" ? "ended" : "decoding";
          if (isLive && taken.kind === "progress") request.generated += taken.tokens;
        }
        expect(totalsOf(load)).toEqual(naiveTotals(naive));
        expect(Math.min(...Object.values(totalsOf(load)))).toBeGreaterThanOrEqual(0);
      }
      for (const ticket of tickets) ticket.end();
      expect(totalsOf(load)).toEqual(totals(0, 0, 0, 0));
    }),
    { numRuns: randomRuns(300), seed: 7 },
  );
});
