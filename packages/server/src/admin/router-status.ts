import { type Described, json } from "@espalier/core";
import { isEngineAsleep } from "@espalier/engines";
import type { RouterParts } from "../create-context.ts";
import type { Readiness } from "../lifecycle/readiness.ts";
import { reloadOutcome } from "../lifecycle/reloader.ts";
import { meshDescription } from "../mesh/describe-mesh.ts";
import { overflowStatus } from "../overflow/overflow.ts";

const requestTotals = json.object(
  {
    requests: json.integer("Requests that are over; the next five counts are parts of it."),
    answered: json.integer("With a whole answer. An error that is the client's own is one."),
    refused: json.integer("With 429 or 503: neither the router nor an engine took it."),
    failed: json.integer("With another error, without any content."),
    cut: json.integer("With a part of an answer."),
    cancelled: json.integer("The client went away."),
    promptTokens: json.integer("Tokens by the engines' own usage reports."),
    cachedTokens: json.integer(),
    completionTokens: json.integer(),
    firstBytes: json.integer("Requests whose first content came, and the seconds until then."),
    firstByteS: json.number(),
  },
  "Since the router's start.",
);

const pickerAddresses = json.object({ address: json.text(), healthAddress: json.text() });

/** `host:port` of the endpoint picker and of its health checks. */
export type PickerAddresses = Described<typeof pickerAddresses>;

/** The answer of `GET /admin/status`. */
export const routerStatus = json.named(
  "Status",
  json.object({
    ready: json.boolean(),
    reasons: json.list(json.text()),
    settings: json.text("Digest of the settings that all routers should have alike."),
    draining: json.boolean(),
    inFlight: json.integer(),
    totals: requestTotals,
    engines: json.integer(),
    usableEngines: json.integer(),
    asleepEngines: json.integer("Those whose metrics say that all their ranks are asleep."),
    models: json.list(json.text()),
    mesh: json.nullable(meshDescription, "Null for a router that shares nothing."),
    lastReload: json.nullable(reloadOutcome, "Null before the first."),
    picker: json.nullable(
      pickerAddresses,
      "`host:port` of the endpoint picker and of its health checks; null for a router that is none.",
    ),
    url: json.text("Where it listens for clients; empty until it does."),
    version: json.nullable(json.text(), "The version of the program; null when the program does not tell it."),
    peers: json.list(
      json.object({ router: json.text(), adminUrl: json.text() }),
      "Admin listeners of the other live routers, as far as they announce them.",
    ),
    overflow: json.list(overflowStatus),
  }),
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
