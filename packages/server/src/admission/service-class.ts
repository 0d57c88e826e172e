import type { IncomingHttpHeaders } from "node:http";
import { EspalierError } from "@espalier/common";
import type { AdmissionConfig } from "@espalier/config";

/** What a client asks of admission. */
export interface ServiceClass {
  /** Undefined for the default class. */
  readonly className: string | undefined;
  readonly tenant: string;
  /** From the arrival on, in milliseconds, until the first token is due; undefined for the class's own target. */
  readonly deadlineMs: number | undefined;
}

const longestTenant = 128;
const longestDeadlineMs = 86_400_000;
/** What SMG calls its classes, where it has other names. */
const otherNames: Readonly<Record<string, string>> = { system: "interactive", bulk: "batch" };

/**
 * Reads whose request it is and how urgent. Headers that other routers know are read where ours are absent; what they
 * say wrongly is passed over, as those routers do.
 *
 * @param bodyPriority the `priority` of the body
 * @param apiKey name of the key that the request came with: its tenant, unless a header that is trusted names one
 * @throws EspalierError `invalid_header`
 */
export function readServiceClass(
  config: AdmissionConfig,
  headers: IncomingHttpHeaders,
  { bodyPriority, apiKey }: { readonly bodyPriority: number | undefined; readonly apiKey: string | undefined },
): ServiceClass {
  return {
    className: readClass(config, headers) ?? classByNumber(config, bodyPriority),
    tenant: (apiKey === undefined || config.trustsTenantHeader ? readTenant(headers) : undefined) ?? apiKey ?? "",
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

/** Below 0 and above 0 in the direction that goes first: the highest class, and the one after the default. */
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
  return own ?? textOf(headers["x-llm-d-inference-fairness-id"])?.slice(0, longestTenant);
}

function readDeadline(headers: IncomingHttpHeaders): number | undefined {
  const own = textOf(headers["x-espalier-deadline-ms"]);
  if (own === undefined) return toDeadline(textOf(headers["x-llm-d-slo-ttft-ms"]));
  const deadlineMs = toDeadline(own);
  if (deadlineMs !== undefined) return deadlineMs;
  throw invalid("x-espalier-deadline-ms", `must be a number of milliseconds from 1 to ${longestDeadlineMs}`);
}

function toDeadline(written: string | undefined): number | undefined {
  const deadlineMs = Number(written);
  return deadlineMs >= 1 && deadlineMs <= longestDeadlineMs ? deadlineMs : undefined;
}

/** An empty header says nothing. */
function textOf(header: string | readonly string[] | undefined): string | undefined {
  const text = typeof header === "string" ? header.trim() : undefined;
  return text === "" ? undefined : text;
}

function invalid(name: string, must: string): EspalierError {
  return new EspalierError("invalid_header", `The header ${name} ${must}.`, { param: name });
}
