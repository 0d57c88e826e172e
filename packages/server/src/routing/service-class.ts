import type { IncomingHttpHeaders } from "node:http";
import type { Endpoint, RequestView } from "@espalier/api";
import { type Clock, EspalierError } from "@espalier/core";
import type { InferenceTables } from "@espalier/engines";
import { enginePlace } from "@espalier/routing";
import type { AdmissionConfig } from "../config/index.ts";
import type { BodyFields, ClientRequest, ServiceClass } from "../request/planned-request.ts";

/** Longest tenant name of a header, in UTF-16 units. */
const longestTenant = 128;
/** Longest deadline of a header. */
const longestDeadlineMs = 86_400_000;
/** SMG's class names that differ from ours. */
const otherNames: Readonly<Record<string, string>> = { system: "interactive", bulk: "batch" };

/** Priorities of inference objectives. */
type Objectives = Pick<InferenceTables, "priorityOf" | "priorities">;

/** What else than headers says a request's class and tenant. */
interface ClassSources {
  /** The `priority` of the body. */
  readonly bodyPriority: number | undefined;
  /** The `service_tier` of the body. */
  readonly serviceTier?: string | undefined;
  /** Name of the request's API key: the tenant, unless a trusted header names one. */
  readonly apiKey: string | undefined;
  readonly objectives: Objectives;
}

/**
 * Reads a request's tenant and urgency. Headers of other routers are read when ours are absent; like those routers, it
 * ignores invalid values in them.
 *
 * @throws EspalierError `invalid_header`
 */
export function readServiceClass(
  config: AdmissionConfig,
  headers: IncomingHttpHeaders,
  { bodyPriority, serviceTier, apiKey, objectives }: ClassSources,
): ServiceClass {
  return {
    className:
      readClass(config, headers) ??
      classByObjective(config, headers, objectives) ??
      classByTier(config, serviceTier) ??
      classByNumber(config, bodyPriority),
    tenant: (apiKey === undefined || config.trustTenantHeader ? readTenant(headers) : undefined) ?? apiKey ?? "",
    deadlineMs: readDeadline(headers),
  };
}

function readClass({ classes }: AdmissionConfig, headers: IncomingHttpHeaders): string | undefined {
  const find = (name: string): string | undefined => classes.find((one) => one.name === name)?.name;
  const own = textOf(headers["x-espalier-priority"]);
  if (own !== undefined) {
    const known = find(own.toLowerCase());
    if (known !== undefined) return known;
    const names = classes.map(({ name }) => name).join(", ");
    throw invalid("x-espalier-priority", `must be one of ${names}`);
  }
  const alias = textOf(headers["x-smg-priority"])?.toLowerCase();
  return alias === undefined ? undefined : (find(alias) ?? find(otherNames[alias] ?? ""));
}

/**
 * The class of a request whose headers name an objective that is known. Priority 0 is the default class. The priorities
 * of all objectives keep their order as far as there are classes: the highest above 0 is the highest class, the next one
 * the next, down to the one before the default; the highest below 0 is the one after the default, and so on.
 */
function classByObjective(
  { classes, defaultClass }: AdmissionConfig,
  headers: IncomingHttpHeaders,
  { priorityOf, priorities }: Objectives,
): string | undefined {
  const name = readAlias(headers, "x-llm-d-inference-objective", "x-gateway-inference-objective");
  const priority = name === undefined ? undefined : priorityOf(name);
  if (priority === undefined) return undefined;
  const middle = classes.findIndex((one) => one.name === defaultClass);
  const rank = priorities.filter((one) => (priority > 0 ? one > priority : one > priority && one < 0)).length;
  const at = priority > 0 ? Math.min(rank, middle - 1) : Math.min(middle + 1 + rank, classes.length - 1);
  return priority === 0 ? defaultClass : classes[Math.max(0, at)]?.name;
}

/** OpenAI's tier of answers that may come late is the lowest class. A tier faster than others is not for clients to choose. */
function classByTier({ classes }: AdmissionConfig, tier: string | undefined): string | undefined {
  return tier === "flex" ? classes.at(-1)?.name : undefined;
}

/** A number on the urgent side of 0 selects the highest class, one on the other side the class after the default. */
function classByNumber(config: AdmissionConfig, priority: number | undefined): string | undefined {
  const { classes, bodyPriority, defaultClass } = config;
  if (bodyPriority === "off" || !priority) return undefined;
  if (priority < 0 === (bodyPriority === "lower-first")) return classes[0]?.name;
  return classes[classes.findIndex(({ name }) => name === defaultClass) + 1]?.name;
}

function readTenant(headers: IncomingHttpHeaders): string | undefined {
  const own = textOf(headers["x-espalier-tenant"]);
  if (own !== undefined && own.length > longestTenant) {
    throw invalid("x-espalier-tenant", `must have at most ${longestTenant} characters`);
  }
  const alias = readAlias(headers, "x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id");
  return own ?? alias?.slice(0, longestTenant);
}

/** A header of llm-d, under its present name or its earlier one. */
function readAlias(headers: IncomingHttpHeaders, present: string, earlier: string): string | undefined {
  return textOf(headers[present]) ?? textOf(headers[earlier]);
}

function readDeadline(headers: IncomingHttpHeaders): number | undefined {
  const own = textOf(headers["x-espalier-deadline-ms"]);
  if (own === undefined) return toDeadline(readAlias(headers, "x-llm-d-slo-ttft-ms", "x-slo-ttft-ms"));
  const deadlineMs = toDeadline(own);
  if (deadlineMs !== undefined) return deadlineMs;
  throw invalid("x-espalier-deadline-ms", `must be a number of milliseconds from 1 to ${longestDeadlineMs}`);
}

function toDeadline(written: string | undefined): number | undefined {
  const deadlineMs = Number(written);
  return deadlineMs >= 1 && deadlineMs <= longestDeadlineMs ? deadlineMs : undefined;
}

/** An empty header counts as absent. */
function textOf(header: string | readonly string[] | undefined): string | undefined {
  const text = typeof header === "string" ? header.trim() : undefined;
  return text === "" ? undefined : text;
}

function invalid(name: string, must: string): EspalierError {
  return new EspalierError("invalid_header", `The header ${name} ${must}.`, { param: name });
}

interface PlannedService {
  /** Absent when admission is off. */
  readonly service?: ServiceClass;
  /** Body fields, as JSON texts, until an engine is chosen. */
  readonly bodyFields: BodyFields;
  /**
   * The fields for an engine with `workMs` of expected work on the prompt; absent when the work makes no difference.
   */
  readonly fieldsFor?: (workMs: number) => BodyFields;
}

const noFields: BodyFields = {};

interface ServicePlanning {
  readonly admission: { readonly config: AdmissionConfig };
  readonly objectives: Objectives;
  readonly clock: Pick<Clock, "wallMs">;
}

/** @throws EspalierError `invalid_header` */
export function planService(
  { admission: { config }, objectives, clock }: ServicePlanning,
  request: ClientRequest,
  view: RequestView,
): PlannedService {
  if (config.mode === "off") return { bodyFields: noFields };
  const { priority: bodyPriority, serviceTier } = view;
  const written = { bodyPriority, serviceTier, apiKey: request.apiKeyName, objectives };
  const service = readServiceClass(config, request.headers, written);
  const { className } = service;
  const prioritized = { endpoint: view.endpoint, className, written: view.priority, arrivedWallMs: clock.wallMs() };
  const priority = enginePriority(config, prioritized);
  if (!priority) return { service, bodyFields: noFields };
  const fieldsFor = (workMs: number): BodyFields => ({ priority: String(priority(workMs)) });
  const bodyFields = fieldsFor(0);
  return config.engineOrder === "arrival" ? { service, bodyFields } : { service, bodyFields, fieldsFor };
}

/** The tenant of a request, also of one without a class. @throws EspalierError `invalid_header` */
export function tenantOf({ admission: { config }, objectives }: ServicePlanning, request: ClientRequest): string {
  const { apiKeyName: apiKey } = request;
  if (config.mode === "off") return apiKey ?? "";
  return readServiceClass(config, request.headers, { bodyPriority: undefined, apiKey, objectives }).tenant;
}

/** What an engine priority is computed from, for one request. */
export interface PrioritizedRequest {
  readonly endpoint: Pick<Endpoint, "family" | "kind">;
  /** Undefined for the default class. */
  readonly className: string | undefined;
  /** `priority` in the client's body. */
  readonly written: number | undefined;
  /** On the wall clock. */
  readonly arrivedWallMs: number;
}

/**
 * Computes the `priority` of a request for an engine's own scheduler.
 *
 * @param workMs expected milliseconds of work on its prompt
 */
type EnginePriority = (workMs: number) => number;

/**
 * The `priority` by which engines' own schedulers know a request's class: 0 for the default class and for a request
 * without one, then one more or less per class. With shortest-first order inside classes, also its place in that order.
 *
 * @returns undefined when the body needs no change
 */
export function enginePriority(config: AdmissionConfig, request: PrioritizedRequest): EnginePriority | undefined {
  const { classes, defaultClass, enginePriority: direction, engineOrder } = config;
  const { endpoint, className, written, arrivedWallMs } = request;
  if (direction === "off" || endpoint.kind !== "generate" || endpoint.family === "anthropic") return undefined;
  const rankOf = (name: string): number => classes.findIndex((one) => one.name === name);
  const classesBelow = rankOf(className ?? defaultClass) - rankOf(defaultClass);
  if (engineOrder === "shortest") return (workMs) => enginePlace({ classesBelow, arrivedWallMs, workMs });
  const priority = direction === "lower-first" ? classesBelow : -classesBelow;
  return priority === (written ?? 0) ? undefined : () => priority;
}
