import type { Cancel, Clock, Scheduler } from "@espalier/core";
import { closed, type Described, nullable, type TSchemaOptions, Type } from "@espalier/core/schema";
import type { FastifyInstance } from "fastify";
import { described } from "../lifecycle/answer-schemas.ts";
import type { RequestMetrics } from "../request/request-metrics.ts";
import { type EventLog, fleetEvent } from "./events.ts";
import { goodputCounts } from "./router-status.ts";

interface HistoryOptions {
  readonly metrics: Pick<RequestMetrics, "totals" | "firstBytes" | "tokenTimes" | "goodput">;
  /** Requests that wait for an engine. */
  readonly waiting: () => number;
  /** The longest lag of an engine's event since the last call, in milliseconds; undefined when none came. */
  readonly takeEventLagMs: () => number | undefined;
  readonly events: Pick<EventLog, "since">;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
}

const measured = (options: TSchemaOptions = {}) => Type.Array(nullable(Type.Number()), options);

/** What a point has, besides its time. Rates are per second of the time since the point before; NaN where nothing was measured. */
const columns = {
  requestsPerS: measured(),
  refusedPerS: measured({ description: "Requests rejected with 429 or 503 by the router or an engine." }),
  limitedPerS: measured({ description: "Part of `refusedPerS`: rejected with 429, at a limit or by a queue." }),
  failedPerS: measured({ description: "Requests that failed before any content." }),
  cutPerS: measured({ description: "Answers cut after the first content." }),
  promptTokensPerS: measured(),
  cachedTokensPerS: measured(),
  outputTokensPerS: measured(),
  firstByteP50Ms: measured({ description: "Time from acceptance to the first byte of the answer." }),
  firstByteP99Ms: measured(),
  tpotP50Ms: measured({ description: "Time per output token after the first, of streams." }),
  tpotP99Ms: measured(),
  metPerS: measured({ description: "Requests that met their objectives." }),
  missedPerS: measured({ description: "Requests that missed their objectives or failed." }),
  waiting: measured({ description: "Requests queued for an engine." }),
  eventLagMs: measured({ description: "Longest lag of KV events." }),
};

type Column = keyof typeof columns;
/** Totals whose growth is a column. */
type Counted =
  | ("requests" | "refused" | "limited" | "failed" | "cut" | "met" | "missed")
  | ("promptTokens" | "cachedTokens" | "completionTokens");
const columnNames = Object.keys(columns) as readonly Column[];

const historyReport = closed(
  {
    nowMs: Type.Number({ description: "Router clock, in milliseconds since the Unix epoch." }),
    atMs: Type.Array(Type.Number(), {
      description: "Times of the points, in milliseconds since the Unix epoch; at most 900.",
    }),
    ...columns,
    goodput: Type.Array(goodputCounts, {
      description:
        "Requests that met or missed their objectives since the router's start, by model and class; at most 64 pairs.",
    }),
    events: Type.Array(fleetEvent, {
      description: "Events of engines and routers, at most 512, oldest first.",
    }),
  },
  {
    title: "History",
    description: "Columns of equal length, oldest point first; null without a measurement.",
  },
);

type HistoryReport = Described<typeof historyReport>;

/** The last minutes of a router, for dashboards that are opened later. */
export interface History {
  /** @param afterMs only points after this time of the router's wall clock */
  report(afterMs: number): HistoryReport;
  stop(): void;
}

export const historyStepMs = 1_000;
/** Fifteen minutes. */
export const historyPoints = 900;

/** Takes a point each second, whether anybody looks or not: it costs microseconds, and what happened unseen is asked for later. */
export function createHistory(options: HistoryOptions): History {
  const { metrics, waiting, takeEventLagMs, events, clock, scheduler } = options;
  const atMs = new Float64Array(historyPoints);
  const values = Object.fromEntries(columnNames.map((name) => [name, new Float32Array(historyPoints)]));
  let taken = 0;
  let before = { ...metrics.totals };
  let beforeMs = clock.nowMs();

  const take = (): void => {
    const [now, nowMs] = [{ ...metrics.totals }, clock.nowMs()];
    const seconds = Math.max(nowMs - beforeMs, 1) / 1_000;
    const perS = (name: Counted): number => (now[name] - before[name]) / seconds;
    const point: Readonly<Record<Column, number>> = {
      ...{ requestsPerS: perS("requests"), refusedPerS: perS("refused") },
      ...{ limitedPerS: perS("limited"), failedPerS: perS("failed"), cutPerS: perS("cut") },
      ...{ promptTokensPerS: perS("promptTokens"), cachedTokensPerS: perS("cachedTokens") },
      outputTokensPerS: perS("completionTokens"),
      ...{ firstByteP50Ms: metrics.firstBytes.quantileMs(0.5), firstByteP99Ms: metrics.firstBytes.quantileMs(0.99) },
      ...{ tpotP50Ms: metrics.tokenTimes.quantileMs(0.5), tpotP99Ms: metrics.tokenTimes.quantileMs(0.99) },
      ...{ metPerS: perS("met"), missedPerS: perS("missed") },
      ...{ waiting: waiting(), eventLagMs: takeEventLagMs() ?? Number.NaN },
    };
    metrics.firstBytes.clear();
    metrics.tokenTimes.clear();
    const place = taken++ % historyPoints;
    atMs[place] = clock.wallMs();
    for (const name of columnNames) values[name]![place] = point[name];
    [before, beforeMs] = [now, nowMs];
  };
  const cancel: Cancel = scheduler.every(historyStepMs, take);

  return {
    report(afterMs) {
      const places: number[] = [];
      for (let at = Math.max(0, taken - historyPoints); at < taken; at++) {
        if (atMs[at % historyPoints]! > afterMs) places.push(at % historyPoints);
      }
      const column = (name: Column) => places.map((place) => rounded(values[name]![place]!));
      const named = Object.fromEntries(columnNames.map((name) => [name, column(name)])) as Record<
        Column,
        (number | null)[]
      >;
      const times = places.map((place) => atMs[place]!);
      return {
        nowMs: clock.wallMs(),
        atMs: times,
        ...named,
        goodput: metrics.goodput(),
        events: events.since(afterMs),
      };
    },
    stop: cancel,
  };
}

/** Digits that no plot shows would double the answer. */
function rounded(value: number): number | null {
  return Number.isNaN(value) ? null : Math.round(value * 100) / 100;
}

/** `GET /admin/history`. */
export function registerHistory(app: FastifyInstance, history: Pick<History, "report">): void {
  const schema = {
    operationId: "history",
    summary: "Last 15 minutes of the router, one point per second.",
    tags: ["dashboard"],
    querystring: Type.Object({
      after: Type.Optional(
        Type.Number({
          description: "Only points after this time of the router clock, in milliseconds since the Unix epoch.",
        }),
      ),
    }),
    response: { 200: described(historyReport) },
  };
  app.get<{ Querystring: { after?: string } }>("/admin/history", { schema }, async ({ query }) =>
    history.report(Number(query.after ?? 0) || 0),
  );
}
