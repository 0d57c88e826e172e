import { EspalierError, silentMeter } from "@espalier/core";
import { defaultObjectives, noObjectives } from "@espalier/policies";
import { describe, expect, test } from "vitest";
import { goodputOf, goodputOfRefusal } from "../src/request/goodput.ts";
import type { PlannedRequest } from "../src/request/planned-request.ts";
import { createRequestMetrics, maxGoodputRows } from "../src/request/request-metrics.ts";
import { type HookAnswer, type RequestEnd, requestOutcome } from "../src/request/request-outcome.ts";

const completed = (status: number) => ({ kind: "completed", status }) as RequestEnd["outcome"];

/** A stream of 11 tokens, the first after 500 ms, the others 20 ms apart. */
const stream: RequestEnd = {
  ...{ outcome: completed(200), error: undefined, fault: undefined, selection: undefined, prefillEngine: undefined },
  ...{ attempts: 1, queuedMs: undefined, dispatchedMs: 1_000, usage: undefined, answerEnd: undefined },
  ...{ firstByteMs: 1_500, isStream: true, outputTokens: 11 },
};

interface Written {
  readonly className?: string;
  readonly expectedOutputTokens?: number;
  readonly endpointId?: PlannedRequest["endpointId"];
}

/** Accepted at 1,000 ms. */
function measure(end: Partial<RequestEnd>, endMs = 1_700, written: Written = {}) {
  const { className, expectedOutputTokens = 100, endpointId = "chat" } = written;
  const pool = {
    ...{ model: "m", defaultClass: "default" },
    objectivesOf: (name?: string) => (name === "strict" ? { ttftMs: 499, tpotMs: 19 } : defaultObjectives),
  };
  const service = { className, tenant: "", deadlineMs: undefined };
  const features = { expectedOutputTokens };
  const plan = { endpointId, pool, service, acceptedMs: 1_000, features } as unknown as PlannedRequest;
  const ended = { ...stream, ...end };
  return goodputOf(plan, ended, { outcome: requestOutcome(ended), endMs });
}

test("images, speech and uploads have no objectives to keep, though they count as work", () => {
  for (const endpointId of ["images", "speech", "transcriptions"] as const)
    expect(measure({}, 1_700, { endpointId })).toBeUndefined();
});

describe("a stream", () => {
  test("is measured by its first token and by the time of each one after it", () => {
    expect(measure({})).toEqual({
      ...{ model: "m", className: "default", result: "met", tpotMs: 20 },
      objectives: defaultObjectives,
    });
    expect(measure({ firstByteMs: 3_000 }, 3_500)?.result).toBe("met");
    expect(measure({ firstByteMs: 3_001 }, 3_501)?.result).toBe("ttft_missed");
    expect(measure({}, 2_001)?.result).toBe("tpot_missed");
    expect(measure({ firstByteMs: 3_001 }, 3_502)?.result).toBe("both_missed");
  });

  test("has its class's objectives to keep", () => {
    expect(measure({}, 1_700, { className: "strict" })).toMatchObject({ className: "strict", result: "both_missed" });
  });

  test("of one token has only its first to keep", () => {
    expect(measure({ outputTokens: 1 }, 9_000)).toMatchObject({ result: "met", tpotMs: Number.NaN });
  });
});

test("a whole answer must come by when a stream that met both would have ended", () => {
  const whole = { isStream: false, firstByteMs: 3_500 };
  expect(measure(whole, 3_500)).toMatchObject({ result: "met", tpotMs: Number.NaN });
  expect(measure(whole, 3_501)?.result).toBe("both_missed");
  expect(measure({ ...whole, outputTokens: 1 }, 3_001)?.result).toBe("both_missed");
  expect(measure({ ...whole, outputTokens: 0 }, 3_500)).toBeUndefined();
});

test("what the tier or an engine failed met nothing; what the client cancelled, or did wrong, is not counted", () => {
  const failed = (code: "no_engine_available" | "client_closed" | "queue_full") => {
    const error = new EspalierError(code);
    return { outcome: { kind: "failed", error } as RequestEnd["outcome"], error, firstByteMs: Number.NaN };
  };
  expect(measure(failed("no_engine_available"))?.result).toBe("failed");
  expect(measure(failed("queue_full"))?.result).toBe("failed");
  expect(measure({ outcome: { kind: "cut" } as RequestEnd["outcome"] })?.result).toBe("failed");
  expect(measure({ outcome: { kind: "client_closed" } as RequestEnd["outcome"] })).toBeUndefined();
  expect(measure({ outcome: completed(400) })).toBeUndefined();
  expect(measure({ firstByteMs: Number.NaN })).toBeUndefined();
  expect(measure({}, 1_700, { expectedOutputTokens: 0 })).toBeUndefined();
});

test("a request that the router refused before it knew the model met nothing, unless it is one that generates nothing", () => {
  const refused = { model: "", className: "", objectives: noObjectives, result: "failed", tpotMs: Number.NaN };
  expect(goodputOfRefusal("chat", "refused")).toEqual(refused);
  expect(goodputOfRefusal("responses", "failed")).toEqual(refused);
  expect(goodputOfRefusal("chat", "answered")).toBeUndefined();
  expect(goodputOfRefusal("chat", "cancelled")).toBeUndefined();
  expect(goodputOfRefusal("embeddings", "refused")).toBeUndefined();
  expect(goodputOfRefusal(undefined, "refused")).toBeUndefined();
});

test("pairs of model and class beyond the bound are in the totals only, and known ones count on", () => {
  const metrics = createRequestMetrics(silentMeter);
  const answer: HookAnswer = {
    ...{ requestId: "r", model: "m", status: 200, outcome: "answered", error: undefined, engine: "e", attempts: 1 },
    ...{ durationMs: 1_000, promptTokens: 1, completionTokens: 1, cachedTokens: 0 },
  };
  const objectives = { ttftMs: 2_000, tpotMs: Number.POSITIVE_INFINITY };
  const end = (model: string): void =>
    metrics.finished("chat", answer, 100, { model, className: "c", objectives, result: "met", tpotMs: 20 });
  for (let number = 0; number <= maxGoodputRows; number++) end(`m${number}`);
  end("m0");
  expect(metrics.goodput()).toHaveLength(maxGoodputRows);
  expect(metrics.goodput()[0]).toEqual({
    ...{ model: "m0", class: "c", met: 2, missed: 0 },
    ttftMs: 2_000,
    tpotMs: null,
  });
  expect(metrics.totals).toMatchObject({ met: maxGoodputRows + 2, missed: 0, streams: maxGoodputRows + 2 });
});
