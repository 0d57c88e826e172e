import { closed, type Described, nullable, Type } from "@espalier/core/schema";
import { engineTroubles, isEngineAsleep } from "@espalier/engines";
import type { RouterParts } from "../create-context.ts";
import type { Readiness } from "../lifecycle/readiness.ts";
import { reloadOutcome } from "../lifecycle/reloader.ts";
import { meshDescription } from "../mesh/describe-mesh.ts";
import { overflowStatus } from "../overflow/overflow.ts";

const requestTotals = closed(
  {
    requests: Type.Integer({ description: "Finished requests; the sum of the next five counts." }),
    answered: Type.Integer({ description: "Complete answers, client errors included." }),
    refused: Type.Integer({ description: "Requests rejected with 429 or 503 by the router or an engine." }),
    failed: Type.Integer({ description: "Requests that failed before any content." }),
    cut: Type.Integer({ description: "Answers cut after the first content." }),
    cancelled: Type.Integer({ description: "Requests cancelled by their clients." }),
    limited: Type.Integer({ description: "Part of `refused`: rejected with 429, at a limit or by a queue." }),
    promptTokens: Type.Integer({ description: "Tokens, by the engines' usage reports." }),
    cachedTokens: Type.Integer(),
    completionTokens: Type.Integer(),
    firstBytes: Type.Integer({
      description: "Requests with content; `firstByteS` is the sum of their times to first content, in seconds.",
    }),
    firstByteS: Type.Number(),
    met: Type.Integer({ description: "Requests that met their objectives (`slo`)." }),
    missed: Type.Integer({
      description: "Requests that missed an objective or failed; client errors and cancellations are not counted.",
    }),
    streams: Type.Integer({
      description: "Streams of more than one token; `tpotS` is the sum of their times per output token, in seconds.",
    }),
    tpotS: Type.Number(),
  },
  { description: "Counts since the router's start." },
);

const objective = (description: string) => nullable(Type.Number(), { description });

/** Requests of a model and class, and their objectives. */
export const goodputCounts = closed({
  model: Type.String({ description: "Model; empty if the request was rejected before its model was known." }),
  class: Type.String({ description: "Priority class; empty without admission." }),
  met: Type.Integer(),
  missed: Type.Integer(),
  ttftMs: objective("Objective for the time to first token of the latest request, in milliseconds; null without one."),
  tpotMs: objective(
    "Objective for the time per output token of the latest request, in milliseconds; null without one.",
  ),
});

const pickerAddresses = closed({ address: Type.String(), healthAddress: Type.String() });

/** `host:port` of the endpoint picker and of its health checks. */
export type PickerAddresses = Described<typeof pickerAddresses>;

/** Most engines in trouble that the status names. */
const listedTroubles = 16;

/** The answer of `GET /admin/status`. */
export const routerStatus = closed(
  {
    ready: Type.Boolean(),
    reasons: Type.Array(Type.String()),
    settings: Type.String({ description: "Digest of the settings that must match on all routers." }),
    draining: Type.Boolean(),
    inFlight: Type.Integer(),
    totals: requestTotals,
    goodput: Type.Array(goodputCounts, {
      description: "Requests that met or missed their objectives, by model and class; at most 64 pairs.",
    }),
    engines: Type.Integer(),
    usableEngines: Type.Integer(),
    asleepEngines: Type.Integer({ description: "Engines with all ranks asleep, by their metrics." }),
    troubledEngines: Type.Array(closed({ engine: Type.String(), trouble: Type.String() }), {
      description: "Engines that are not up, fail, are unresponsive or slow, and why, in words; at most 16.",
    }),
    models: Type.Array(Type.String()),
    mesh: nullable(meshDescription, { description: "Mesh state; null for a router that shares nothing." }),
    lastReload: nullable(reloadOutcome, { description: "Last reload; null before the first." }),
    picker: nullable(pickerAddresses, {
      description: "`host:port` of the endpoint picker and of its health checks; null if disabled.",
    }),
    url: Type.String({ description: "URL for clients; empty until the router listens." }),
    version: nullable(Type.String(), {
      description: "Version of the program; null if unknown.",
    }),
    peers: Type.Array(closed({ router: Type.String(), adminUrl: Type.String() }), {
      description: "Admin URLs of the other live routers that advertise one.",
    }),
    overflow: Type.Array(overflowStatus),
  },
  { title: "Status" },
);

export type RouterStatus = Described<typeof routerStatus>;

/** What only the router as a whole knows of itself. */
type OwnStatus = Pick<RouterStatus, "picker" | "url" | "version" | "peers">;

export function statusOf(context: RouterParts, readiness: Readiness, own: OwnStatus): RouterStatus {
  const { fleet, drain, inFlight, mesh, metrics, overflow, reloader, release } = context;
  return {
    ...readiness,
    settings: release().settings,
    draining: drain.started,
    inFlight: inFlight.count,
    totals: metrics.totals,
    goodput: metrics.goodput(),
    engines: fleet.engines.length,
    usableEngines: fleet.usableCount(),
    asleepEngines: fleet.engines.filter(isEngineAsleep).length,
    troubledEngines: [...engineTroubles(fleet.engines)]
      .slice(0, listedTroubles)
      .map(([engine, trouble]) => ({ engine, trouble })),
    models: fleet.models().map((model) => model.id),
    mesh: mesh?.describe() ?? null,
    lastReload: reloader.last ?? null,
    overflow: overflow.describe(),
    ...own,
  };
}
