import type { JsonObject, Random } from "@espalier/core";
import { optionalInteger, optionalNumber, optionalString } from "./http/body-fields.ts";
import { ApiError, missingField, wrongField } from "./http/exchange.ts";

const faultKinds = [
  "refuse",
  "hang-before-headers",
  "hang-mid-stream",
  "reset-before-headers",
  "reset-mid-prefill",
  "reset-mid-stream",
  "cut-mid-stream",
  "status",
  "slow",
  "garbage",
  "garbage-body",
  "huge-body",
  "unhealthy",
  "sick",
  "metrics-lie",
  "transfer-refused",
  "transfer-slow",
  "transfer-broken",
  "transfer-missing",
] as const;

export type FaultKind = (typeof faultKinds)[number];

/** An injected fault of requests. */
export interface Fault {
  readonly kind: FaultKind;
  /** Requests that it still hits; undefined for all until cleared. */
  readonly count: number | undefined;
  /** Share of the matching requests that it hits, 0..1. */
  readonly probability: number;
  /** Streamed tokens before a mid-stream fault, or before `slow` begins. */
  readonly afterTokens: number | undefined;
  /** Draws `afterTokens` anew for each request that it hits, from 1 to this. */
  readonly withinTokens: number | undefined;
  /** Real milliseconds. */
  readonly delayMs: number | undefined;
  /** HTTP status of `status` and `garbage-body`. */
  readonly status: number;
  /** Prefix of the paths that it hits; undefined for the default paths of its kind. */
  readonly path: string | undefined;
}

/** The active faults. The first that matches a request, and whose probability comes up, hits it. */
export type FaultTable = ReturnType<typeof createFaultTable>;

/** Active faults of one engine. */
const maxFaults = 16;

/** The path at which other engines fetch blocks, on the side channel. */
export const transferPath = "/kv/claim";

/** The path at which other engines pull blocks from CPU memory, on the side channel of `--p2p`. */
export const pullPath = "/kv/pull";

/** @param random draws for `probability` and `withinTokens` */
export function createFaultTable(random: Random) {
  let faults: Fault[] = [];
  return {
    /** @throws ApiError 400 when `maxFaults` are active */
    add(fault: Fault): void {
      if (faults.length >= maxFaults) throw new ApiError(400, `at most ${maxFaults} faults at once`);
      faults.push(fault);
    },
    clear(): void {
      faults = [];
    },
    list: (): readonly Fault[] => faults,
    /** The fault that hits a request to `path`; counts it down. */
    take(path: string, isModelRequest: boolean): Fault | undefined {
      for (const [at, fault] of faults.entries()) {
        if (!matches(fault, path, isModelRequest)) continue;
        if (fault.probability < 1 && random.float() >= fault.probability) continue;
        if (fault.count === 1) faults.splice(at, 1);
        else if (fault.count !== undefined) faults[at] = { ...fault, count: fault.count - 1 };
        const { withinTokens } = fault;
        return withinTokens === undefined ? fault : { ...fault, afterTokens: 1 + random.integer(withinTokens) };
      }
      return undefined;
    },
  };
}

function matches({ kind, path: prefix }: Fault, path: string, isModelRequest: boolean): boolean {
  if (prefix !== undefined) return path.startsWith(prefix);
  switch (kind) {
    case "refuse":
      return true;
    case "unhealthy":
      return path === "/health" || path === "/ping";
    case "metrics-lie":
      return path === "/metrics";
    case "transfer-refused":
    case "transfer-slow":
    case "transfer-broken":
      return path === transferPath || path === pullPath;
    case "transfer-missing":
      return path === pullPath;
    default:
      return isModelRequest;
  }
}

/** The status that a fault answers with; undefined for other faults. */
export function injectedStatus(fault: Fault | undefined): number | undefined {
  if (fault?.kind === "sick") return 500;
  return fault?.kind === "status" ? fault.status : undefined;
}

/** Largest `withinTokens`. */
const maxWithinTokens = 1_000_000;

/** Longest delay that a fault adds. */
const maxDelayMs = 600_000;

/**
 * A fault from the body of `POST /sim/faults`.
 *
 * @throws ApiError 400 naming the field that is missing or wrong
 */
export function parseFault(body: JsonObject): Fault {
  const kind = faultKinds.find((known) => known === body.kind);
  if (body.kind === undefined) throw missingField("kind");
  if (!kind) throw wrongField("kind", `one of ${faultKinds.join(", ")}`);
  const delayMs = optionalNumber(body, "delayMs", 0, maxDelayMs);
  if ((kind === "slow" || kind === "transfer-slow") && delayMs === undefined) throw missingField("delayMs");
  return {
    kind,
    count: optionalInteger(body, "count", 1, Number.MAX_SAFE_INTEGER),
    probability: optionalNumber(body, "probability", 0, 1) ?? 1,
    afterTokens: optionalInteger(body, "afterTokens", 0, Number.MAX_SAFE_INTEGER),
    withinTokens: optionalInteger(body, "withinTokens", 1, maxWithinTokens),
    delayMs,
    status: optionalInteger(body, "status", 400, 599) ?? 503,
    path: optionalString(body, "path"),
  };
}
