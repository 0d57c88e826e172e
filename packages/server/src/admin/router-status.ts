import { closed, type Described, nullable, Type } from "@espalier/core/schema";
import { isEngineAsleep } from "@espalier/engines";
import type { RouterParts } from "../create-context.ts";
import type { Readiness } from "../lifecycle/readiness.ts";
import { reloadOutcome } from "../lifecycle/reloader.ts";
import { meshDescription } from "../mesh/describe-mesh.ts";
import { overflowStatus } from "../overflow/overflow.ts";

const requestTotals = closed(
  {
    requests: Type.Integer({ description: "Requests that are over; the next five counts are parts of it." }),
    answered: Type.Integer({ description: "With a whole answer. An error that is the client's own is one." }),
    refused: Type.Integer({ description: "With 429 or 503: neither the router nor an engine took it." }),
    failed: Type.Integer({ description: "With another error, without any content." }),
    cut: Type.Integer({ description: "With a part of an answer." }),
    cancelled: Type.Integer({ description: "The client went away." }),
    promptTokens: Type.Integer({ description: "Tokens by the engines' own usage reports." }),
    cachedTokens: Type.Integer(),
    completionTokens: Type.Integer(),
    firstBytes: Type.Integer({ description: "Requests whose first content came, and the seconds until then." }),
    firstByteS: Type.Number(),
    kept: Type.Integer({ description: "Requests whose answers kept their objectives (`slo`)." }),
    missed: Type.Integer({
      description: "Requests that missed one, or failed; those that count for neither are not in it.",
    }),
    streams: Type.Integer({
      description: "Streams of more than one token, and the sum of their seconds per output token.",
    }),
    tpotS: Type.Number(),
  },
  { description: "Since the router's start." },
);

const objective = (description: string) => nullable(Type.Number(), { description });

/** Requests of a model and class, and what they have to keep. */
export const goodputCounts = closed({
  model: Type.String({ description: "Empty for requests that were refused before their model was known." }),
  class: Type.String({ description: "Empty without admission." }),
  kept: Type.Integer(),
  missed: Type.Integer(),
  ttftMs: objective("Milliseconds to the first token that the latest of them had to keep; null for no objective."),
  tpotMs: objective("Milliseconds per output token that the latest of them had to keep; null for no objective."),
});

const pickerAddresses = closed({ address: Type.String(), healthAddress: Type.String() });

/** `host:port` of the endpoint picker and of its health checks. */
export type PickerAddresses = Described<typeof pickerAddresses>;

/** The answer of `GET /admin/status`. */
export const routerStatus = closed(
  {
    ready: Type.Boolean(),
    reasons: Type.Array(Type.String()),
    settings: Type.String({ description: "Digest of the settings that all routers should have alike." }),
    draining: Type.Boolean(),
    inFlight: Type.Integer(),
    totals: requestTotals,
    goodput: Type.Array(goodputCounts, {
      description: "Requests that kept their objectives or missed them, by model and class; at most 64 pairs.",
    }),
    engines: Type.Integer(),
    usableEngines: Type.Integer(),
    asleepEngines: Type.Integer({ description: "Those whose metrics say that all their ranks are asleep." }),
    models: Type.Array(Type.String()),
    mesh: nullable(meshDescription, { description: "Null for a router that shares nothing." }),
    lastReload: nullable(reloadOutcome, { description: "Null before the first." }),
    picker: nullable(pickerAddresses, {
      description: "`host:port` of the endpoint picker and of its health checks; null for a router that is none.",
    }),
    url: Type.String({ description: "Where it listens for clients; empty until it does." }),
    version: nullable(Type.String(), {
      description: "The version of the program; null when the program does not tell it.",
    }),
    peers: Type.Array(closed({ router: Type.String(), adminUrl: Type.String() }), {
      description: "Admin listeners of the other live routers, as far as they announce them.",
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
    models: fleet.models().map((model) => model.id),
    mesh: mesh?.describe() ?? null,
    lastReload: reloader.last ?? null,
    overflow: overflow.describe(),
    ...own,
  };
}
