import { asEspalierError, type HttpClient, type HttpRequest } from "@espalier/common";

/** How a control request ended; a bounded set, fit for a metric label. */
export type FetchOutcome = (typeof fetchOutcomes)[number];

/** `local`: this router could open no connection, to whomever. */
export const fetchOutcomes = ["ok", "status", "timeout", "unreachable", "protocol", "local"] as const;

export interface Fetched {
  readonly outcome: FetchOutcome;
  /** HTTP status, 0 without an answer. */
  readonly status: number;
  readonly body: string;
}

/** Sends one control request; a failure is a result here, never a throw. */
export async function controlFetch(http: HttpClient, request: HttpRequest): Promise<Fetched> {
  try {
    const { status, body } = await http(request);
    return { outcome: status >= 200 && status < 300 ? "ok" : "status", status, body };
  } catch (thrown) {
    return { outcome: failureOutcome(thrown), status: 0, body: "" };
  }
}

function failureOutcome(thrown: unknown): FetchOutcome {
  switch (asEspalierError(thrown).code) {
    case "upstream_timeout":
      return "timeout";
    case "out_of_descriptors":
      return "local";
    case "upstream_connect_failed":
      return "unreachable";
    default:
      return "protocol";
  }
}

/** One phrase for logs: `timeout`, or `status 503`. */
export function describeOutcome({ outcome, status }: Fetched): string {
  return outcome === "status" ? `status ${status}` : outcome;
}
