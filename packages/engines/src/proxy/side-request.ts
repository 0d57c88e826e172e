import { EspalierError } from "@espalier/core";
import { Attempt, type AttemptLimits, type AttemptOwner, type ResendGuard } from "./attempt.ts";
import { wireBody } from "./connection.ts";
import type { Deadlines } from "./deadlines.ts";
import type { FailureKind } from "./failure.ts";
import { withUpstreamHeaders } from "./headers.ts";
import type { UpstreamPools } from "./upstream-pools.ts";

/** Where a request goes. */
export interface Upstream {
  /** `http://host:port` or `https://host:port`, with an optional path prefix. */
  readonly url: string;
  /** Flat name and value pairs to send, such as credentials. They replace the client's headers of the same name. */
  readonly headers: readonly string[];
}

/** An additional request for a client's request, whose answer the client does not see. */
export interface SideRequest {
  readonly method: string;
  /** With the query; begins with a slash. */
  readonly path: string;
  /** From `requestHeaders`. */
  readonly headers: readonly string[];
  readonly body: readonly Buffer[];
  readonly upstream: Upstream;
  /** Most bytes of the answer that are kept; a longer one is read and dropped. */
  readonly keptBytes: number;
  /** That of the client's request. */
  readonly resends: ResendGuard;
}

export type SideOutcome =
  /** The answer is complete. `body` is undefined when it exceeded `keptBytes`. */
  | { readonly kind: "answered"; readonly status: number; readonly body: Buffer | undefined }
  | { readonly kind: "failed"; readonly failure: FailureKind; readonly error: EspalierError }
  /** Cancelled by its caller, or with the proxy. */
  | { readonly kind: "cancelled" };

export interface SideCall {
  /** Never rejected. */
  readonly outcome: Promise<SideOutcome>;
  /** Ends it and its connection at once, which engines treat as a client that went away. */
  cancel(): void;
}

interface SideContext {
  readonly pools: UpstreamPools;
  readonly deadlines: Deadlines;
  readonly options: AttemptLimits;
}

/** Sends a side request over the same connections and with the same time limits as clients' requests. */
export function sendSideRequest({ pools, deadlines, options }: SideContext, request: SideRequest): SideCall {
  let settle: (outcome: SideOutcome) => void = () => {};
  const outcome = new Promise<SideOutcome>((resolve) => {
    settle = resolve;
  });
  let attempt: Attempt | undefined;
  try {
    const { upstream, method, path } = request;
    const pool = pools.of(upstream.url);
    const headers = withUpstreamHeaders(request.headers, upstream);
    const wire = { method, path: pool.pathPrefix + path, headers, body: wireBody(request.body) };
    const owner = new SideAnswer(request.keptBytes, settle);
    const terms = { deadlineMs: Number.POSITIVE_INFINITY, resends: request.resends };
    attempt = new Attempt(owner, pool, wire, deadlines, options, terms);
    if (!attempt.start()) settle({ kind: "failed", failure: "overloaded", error: new EspalierError("overloaded") });
  } catch (thrown) {
    const error = new EspalierError("upstream_connect_failed", undefined, { cause: thrown });
    settle({ kind: "failed", failure: "connect", error });
  }
  return {
    outcome,
    cancel() {
      attempt?.cancel();
      settle({ kind: "cancelled" });
    },
  };
}

/** Collects an answer up to a size. */
class SideAnswer implements AttemptOwner {
  readonly awaitsContent = false;
  readonly #keptBytes: number;
  readonly #settle: (outcome: SideOutcome) => void;
  #chunks: Buffer[] = [];
  #bytes = 0;
  #status = 0;

  constructor(keptBytes: number, settle: (outcome: SideOutcome) => void) {
    this.#keptBytes = keptBytes;
    this.#settle = settle;
  }

  answered(status: number): boolean {
    this.#status = status;
    return true;
  }

  received(chunk: Buffer): boolean {
    this.#bytes += chunk.length;
    if (this.#bytes > this.#keptBytes) this.#chunks = [];
    else this.#chunks.push(Buffer.from(chunk));
    return true;
  }

  ended(): void {
    const body = this.#bytes > this.#keptBytes ? undefined : Buffer.concat(this.#chunks);
    this.#settle({ kind: "answered", status: this.#status, body });
  }

  failed(failure: FailureKind, error: EspalierError): void {
    this.#settle({ kind: "failed", failure, error });
  }

  refused(): void {
    this.#settle({ kind: "cancelled" });
  }

  stalled(): void {
    this.#settle({ kind: "cancelled" });
  }
}
