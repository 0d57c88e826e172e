import type { Answer, LoadRequest } from "@espalier/simulator";
import { expect, test } from "vitest";
import { admissionConfig } from "../src/failures/admission-settings.ts";
import { createFailoverClient, type Outcome } from "../src/failures/failover-client.ts";
import { isMet } from "../src/failures/figure-row.ts";
import { killRows } from "../src/failures/kill.ts";
import { createRequests, type RequestMix } from "../src/failures/open-load.ts";
import { overloadRows, searchPeak } from "../src/failures/overload.ts";
import { restartRows } from "../src/failures/restart.ts";
import { cachedShare, firstTokenTimes, goodputOf, rankOf, refusalsOf, tally } from "../src/failures/tally.ts";
import { failuresParams, failuresPlan, failuresReport, failuresSuite, failuresTable } from "../src/suites/failures.ts";
import { readParams } from "../src/support/params.ts";
import { UsageError } from "../src/support/usage-error.ts";

const planOf = (args: readonly string[]) => failuresPlan(readParams(failuresParams, args));

const fine: Outcome = {
  ...{ startMs: 0, firstTokenMs: 10, endMs: 20, status: 200, promptTokens: 100, completionTokens: 4, cachedTokens: 50 },
  ...{ engine: "a", error: undefined, text: "", isStream: true, refused: 0 },
};
const nothing: Partial<Outcome> = { firstTokenMs: Number.NaN, engine: undefined };
const reset: Outcome = { ...fine, ...nothing, status: 0, error: "read ECONNRESET" };
const busy: Outcome = { ...fine, ...nothing, status: 429, error: "status 429", headers: { "retry-after": "1" } };
const framed: Outcome = { ...fine, error: "the engine is gone", isErrorInBody: true };
const torn: Outcome = { ...fine, error: "aborted" };
const figuresOf = (rows: readonly { readonly figure: string; readonly value: number }[]) =>
  Object.fromEntries(rows.map(({ figure, value }) => [figure, value]));

/** A client whose addresses in the list refuse connections. */
function clientWith(refusing: readonly string[]) {
  const asked: string[] = [];
  const answer = ({ url }: LoadRequest): Answer => {
    asked.push(url);
    return refusing.includes(url) ? { ...reset, error: `connect ECONNREFUSED ${url}` } : fine;
  };
  const client = { send: (request: LoadRequest) => Promise.resolve(answer(request)), close() {} };
  return { asked, failover: createFailoverClient(client, ["a", "b", "c"]) };
}

const request = { path: "/", body: "" };

test("addresses are taken in turn, and one that refuses is passed over", async () => {
  const { asked, failover } = clientWith(["b"]);
  const outcomes = [];
  for (let sent = 0; sent < 4; sent++) outcomes.push(await failover.send(request, true));
  expect(asked).toEqual(["a", "b", "c", "c", "a"]);
  expect(outcomes.map(({ refused }) => refused)).toEqual([0, 1, 0, 0]);
});

test("a client gives up after two rounds of addresses that refuse", async () => {
  const { asked, failover } = clientWith(["a", "b", "c"]);
  const outcomes = await failover.send(request, false);
  expect(asked).toHaveLength(6);
  expect([outcomes.error, outcomes.refused]).toEqual(["connect ECONNREFUSED c", 5]);
});

const mix: RequestMix = {
  ...{ families: 3, sharedWords: 20, ownWords: 10, streamTokens: 40, streamShare: 0.5, plainTokens: 4 },
};

test("half of the requests are streams; all have texts of their own and share those of families", () => {
  const requestOf = createRequests(mix, 1);
  const made = Array.from({ length: 200 }, (_, number) => requestOf(number));
  const bodies = made.map(({ body }) => JSON.parse(body));
  expect(made.filter(({ isStream }) => isStream)).toHaveLength(100);
  expect(bodies.filter(({ stream, max_tokens: tokens }) => stream && tokens === 40)).toHaveLength(100);
  expect(new Set(bodies.map(({ messages }) => messages[0].content)).size).toBe(3);
  expect(new Set(bodies.map(({ messages }) => messages[1].content)).size).toBe(200);
  const others = createRequests(mix, 2);
  expect(others(0).body).not.toBe(createRequests(mix, 1)(0).body);
  expect(createRequests(mix, 1)(0).body).toBe(made[0]?.body);
});

test("without families there is one message, and every request may be a stream", () => {
  const requestOf = createRequests({ ...mix, families: 0, streamShare: 1 }, 1);
  const made = [0, 1, 2].map(requestOf);
  expect(made.every(({ isStream }) => isStream)).toBe(true);
  expect(JSON.parse(made[1]!.body).messages).toHaveLength(1);
});

test("a stream that had begun is cut, everything else that went wrong has failed", () => {
  const plain: Outcome = { ...torn, isStream: false };
  const { requests, completed, failed, cut, refused } = tally([
    { ...fine, refused: 2 },
    reset,
    busy,
    framed,
    torn,
    plain,
  ]);
  expect([requests, completed, refused]).toEqual([6, 1, 2]);
  expect(failed).toEqual([reset, busy, plain]);
  expect(cut).toEqual([framed, torn]);
});

test("the cached share is that of requests sent in the span, by tokens", () => {
  const outcomes = [fine, { ...fine, startMs: 5, promptTokens: 300, cachedTokens: 0 }, { ...fine, startMs: 10 }];
  expect(cachedShare(outcomes, { fromMs: 0, toMs: 10 })).toBe(50 / 400);
  expect(cachedShare([], { fromMs: 0, toMs: 10 })).toBeNaN();
});

test("times to first tokens are those of streams that had one, ascending", () => {
  const slow = { ...fine, firstTokenMs: 30 };
  expect([...firstTokenTimes([slow, fine, reset, { ...fine, isStream: false }])]).toEqual([10, 30]);
  expect(rankOf(new Float64Array(), 50)).toBeNaN();
  expect(rankOf(Float64Array.of(1, 3), 50)).toBe(2);
});

test("goodput is what ended in the span, well and with its first token in time", () => {
  const outcomes = [fine, { ...fine, endMs: 1_000 }, { ...fine, firstTokenMs: 11 }, torn, { ...fine, endMs: 999 }];
  expect(goodputOf(outcomes, { fromMs: 0, toMs: 1_000 }, 10)).toBe(2);
  expect(goodputOf(outcomes, { fromMs: 0, toMs: 500 }, 11)).toBe(4);
});

test("refusals are counted by status, and those without a time to come again", () => {
  const later = { ...busy, startMs: 100 };
  const unavailable = { ...busy, status: 503, headers: {} };
  const odd = { ...busy, headers: { "retry-after": "soon" } };
  expect(refusalsOf([fine, busy, later, unavailable, odd, reset], { fromMs: 0, toMs: 100 })).toEqual({
    ...{ offered: 5, status429: 2, status503: 1, withoutRetryAfter: 2, otherwise: 1 },
  });
});

test("restarts: what failed and was cut has to be none, and each restart its time", () => {
  const restarts = [
    { fromMs: 100, toMs: 150 },
    { fromMs: 150, toMs: 220 },
  ];
  const after = { ...fine, startMs: 225, cachedTokens: 90 };
  const during = { ...fine, startMs: 160, cachedTokens: 0, refused: 1 };
  const rows = restartRows([{ ...fine, startMs: 95 }, during, after, reset], {
    quietMs: 10,
    restarts,
    feedsNotLive: 1,
  });
  expect(figuresOf(rows)).toEqual({
    ...{
      requests: 4,
      streams: 4,
      completed: 3,
      failed: 1,
      streams_cut: 0,
      connections_retried: 1,
      connections_reset: 1,
    },
    ...{ router_1_restart_ms: 50, router_2_restart_ms: 70, feeds_not_live_at_end: 1 },
    ...{ cached_share_before: 0.5, cached_share_during: 0, cached_share_after: 0.9 },
  });
  const judged = rows.filter((row) => isMet(row) !== undefined);
  expect(judged.map((row) => [row.figure, isMet(row)])).toEqual([
    ["failed", false],
    ["streams_cut", true],
  ]);
});

test("a kill: cuts are told apart by engine and by their last frame, and retries by what they took longer", () => {
  const kill = { engine: "a", atMs: 10_000 };
  const retried = {
    ...fine,
    startMs: 10_400,
    firstTokenMs: 10_450,
    endMs: 10_500,
    headers: { "x-espalier-attempts": "2" },
  };
  const early = { ...fine, firstTokenMs: 5_000 };
  const beside = { ...fine, startMs: 9_500, firstTokenMs: 9_510 };
  // After the headers of an answer no other engine is asked: that is no fault of the router, elsewhere it is.
  const short = { ...reset, status: 502, error: "status 502", errorCode: "upstream_cut_short" };
  const shorts = [
    { ...short, headers: { "x-espalier-failed-engine": "a" } },
    { ...short, headers: { "x-espalier-failed-engine": "b" } },
  ];
  const rows = killRows([early, beside, framed, torn, { ...framed, engine: "b" }, reset, ...shorts, retried], kill);
  expect(figuresOf(rows)).toEqual({
    ...{ requests: 9, completed: 3, failed_after_engine_headers: 1, failed_without_first_byte: 2, requests_retried: 1 },
    ...{ streams_cut_with_error_frame: 1, streams_cut_without_error_frame: 1, streams_cut_elsewhere: 1 },
    ...{ last_request_sent_there_ms: 400, failover_added_p50_ms: 40, failover_added_p99_ms: 40 },
  });
  expect(rows.filter((row) => isMet(row) === false)).toHaveLength(3);
});

test("a kill that nobody noticed has no delay to tell of", () => {
  const figures = figuresOf(killRows([fine], { engine: "a", atMs: 1_000 }));
  expect(figures).toMatchObject({ requests_retried: 0, last_request_sent_there_ms: 0 });
  expect(figures).not.toHaveProperty("failover_added_p50_ms");
});

test("overload: the share of the best step, and what was refused", () => {
  const steps = [
    { offeredPerSecond: 8, goodputPerSecond: 8 },
    { offeredPerSecond: 12, goodputPerSecond: 10 },
    { offeredPerSecond: 14, goodputPerSecond: 9 },
  ];
  const good = Array.from({ length: 9 }, () => ({ ...fine, endMs: 500 }));
  const rows = overloadRows([...good, ...good.map(() => busy)], {
    span: { fromMs: 0, toMs: 1_000 },
    steps,
    ttftMs: 10,
  });
  expect(figuresOf(rows)).toEqual({
    ...{ peak_offered_per_s: 12, peak_goodput_per_s: 10, offered_per_s: 18, goodput_per_s: 9 },
    offered_share_of_most_goodput: 1.8,
    ...{
      goodput_share_of_peak: 0.9,
      share_429: 0.5,
      share_503: 0,
      refused_without_retry_after: 0,
      failed_otherwise: 0,
    },
    ...{ admitted_ttft_p50_ms: 10, admitted_ttft_p99_ms: 10 },
  });
  expect(rows.filter((row) => isMet(row) === false)).toEqual([]);
});

test("a peak that was found too low is noticed: the overload was none", () => {
  const steps = [{ offeredPerSecond: 5, goodputPerSecond: 5 }];
  const good = Array.from({ length: 9 }, () => ({ ...fine, endMs: 500 }));
  const rows = overloadRows(good, { span: { fromMs: 0, toMs: 1_000 }, steps, ttftMs: 10 });
  expect(rows.filter((row) => isMet(row) === false).map(({ figure }) => figure)).toEqual([
    "offered_share_of_most_goodput",
  ]);
});

test("the search goes on until two steps in a row bring no more, and never beyond eight", async () => {
  const offeredTo = async (goodputOfRate: (rate: number) => number) => {
    const offer = async (rate: number) => ({ offeredPerSecond: rate, goodputPerSecond: goodputOfRate(rate) });
    return (await searchPeak(10, offer)).map(({ offeredPerSecond }) => Math.round(offeredPerSecond * 10) / 10);
  };
  expect(await offeredTo((rate) => (rate < 14 ? rate : 12))).toEqual([10, 11.5, 13.2, 15.2, 17.5]);
  expect(await offeredTo(() => 0)).toEqual([10, 11.5]);
  expect(await offeredTo((rate) => rate)).toHaveLength(8);
});

test("a figure that could not be measured misses its target", () => {
  const row = { part: "kill", figure: "x", value: Number.NaN } as const;
  expect(isMet(row)).toBeUndefined();
  expect(isMet({ ...row, target: { most: 1 } })).toBe(false);
  expect(isMet({ ...row, value: 1, target: { least: 1 } })).toBe(true);
});

test("the settings are a configuration", () => {
  expect(admissionConfig({ targetMs: 1_000, maxPendingTokens: 2_048 })).toMatch(
    /^admission:\n {2}classes:\n {4}- name: default\n {6}target: 1000ms\n {6}max-pending-tokens: 2048\n$/,
  );
  expect(admissionConfig({ targetMs: 1_000, maxPendingTokens: undefined })).toMatch(/target: 1000ms\n$/);
});

test("without flags all parts run at the rate that targets are set for", () => {
  expect(planOf([])).toEqual({
    ...{ parts: ["restart", "kill", "overload"], rate: 200, engines: 4, overloadEngines: 8 },
    ...{ durationMs: 40_000, ttftMs: 3_000, admission: { targetMs: 3_000, maxPendingTokens: undefined } },
  });
  const flags = ["--only=kill", "--rate=5", "--engines=2", "--overload-engines=3", "--duration=1m", "--ttft=3s"];
  expect(planOf([...flags, "--target=500ms", "--max-pending-tokens=7"])).toEqual({
    ...{ parts: ["kill"], rate: 5, engines: 2, overloadEngines: 3, durationMs: 60_000, ttftMs: 3_000 },
    admission: { targetMs: 500, maxPendingTokens: 7 },
  });
  expect(planOf(["--ttft=2s"]).admission).toEqual({ targetMs: 2_000, maxPendingTokens: undefined });
  expect(planOf(["--admission-defaults"])).not.toHaveProperty("admission");
});

test.each([
  [["--only", "everything"], /^--only: there is no "everything", but restart, kill, overload/],
  [["--rate", "1001"], /^--rate must be/],
  [["--engines", "0"], /^--engines must be/],
  [["--overload-engines", "65"], /^--overload-engines must be/],
  [["--duration", "40"], /^--duration must be/],
  [["--ttft", "0s"], /^--ttft must be/],
  [["--target", "soon"], /^--target must be/],
  [["--max-pending-tokens", "1.5"], /^--max-pending-tokens must be/],
  [["--admission-defaults", "--target", "1s"], /^--admission-defaults goes with neither/],
])("%j is refused by name", (args, message) => {
  expect(() => planOf(args)).toThrow(UsageError);
  expect(() => planOf(args)).toThrow(message);
});

test("the report has every figure by its part, and what is missed in sentences", () => {
  const rows = [
    { part: "kill", figure: "failed", value: 2, target: { most: 0 } },
    { part: "kill", figure: "share", value: 0.954, target: { least: 0.9 } },
    { part: "kill", figure: "requests", value: 7 },
    { part: "kill", figure: "p99_ms", value: Number.NaN },
  ] as const;
  const report = failuresReport(new Map([["kill", { rows, params: { rate: 5 }, wrong: ["no engine, status 500"] }]]));
  expect(report.metrics).toMatchObject({ kill_failed: 2, kill_share: 0.954, kill_requests: 7 });
  expect(report.params).toEqual({ kill_rate: 5 });
  expect(report.failures).toEqual(["kill: failed is 2, not <= 0"]);
  expect(report.rows.map(({ met }) => met)).toEqual([false, true, undefined, undefined]);
  expect(report.warnings).toEqual(["kill: no engine, status 500"]);
  const table = failuresTable(report);
  for (const piece of ["FAIL", "pass", "not measured", "kill_rate: 5"]) {
    expect(table).toContain(piece);
  }
});

test("every flag is in the help", () => {
  const flags = ["only", "rate", "engines", "overload-engines", "duration", "ttft", "target", "max-pending-tokens"];
  for (const flag of [...flags, "admission-defaults", "json"]) expect(failuresSuite.help).toContain(`--${flag}`);
});
