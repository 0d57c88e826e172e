import type { Scheduler } from "@espalier/core";

/** One router's report about itself at one time. */
export interface RouterSample {
  /** Since the load began. */
  readonly atMs: number;
  readonly router: string;
  /** Resident memory. */
  readonly rssMb: number;
  readonly heapMb: number;
  /** Open files and sockets. */
  readonly handles: number;
  /** The longest delay of the event loop since the previous sample, and the 99th percentile. */
  readonly loopMaxMs: number;
  readonly loopP99Ms: number;
  /** Total of the journals it holds. */
  readonly journalMb: number;
  readonly facts: readonly FactDigest[];
}

/** What a router knows of a target's cache up to one of its events. */
export interface FactDigest {
  readonly target: string;
  /** Names the target's epoch and the last event in the digest. */
  readonly point: string;
  readonly digest: string;
}

interface MeshPage {
  readonly journals: { readonly bytes: number };
  readonly targets: readonly {
    readonly target: string;
    readonly epoch: string | null;
    readonly sequence: number | null;
    readonly isComplete: boolean;
    readonly digest: string | null;
  }[];
}

const bytesPerMb = 1e6;
const timeoutMs = 5_000;

/**
 * Queries a router's admin listener.
 *
 * @throws Error when it does not answer, or the answer lacks what is looked for
 */
export async function sampleRouter(
  { name: router, adminUrl }: { readonly name: string; readonly adminUrl: string },
  atMs: number,
  scheduler: Scheduler,
): Promise<RouterSample> {
  const late = new AbortController();
  const cancel = scheduler.after(timeoutMs, () => late.abort());
  const pages = ["metrics", "admin/mesh"].map((path) => ask(`${adminUrl}/${path}`, late.signal));
  const [metrics = "", mesh = ""] = await Promise.all(pages).finally(cancel);
  return readSample({ router, atMs, metrics, mesh: JSON.parse(mesh) as MeshPage });
}

export interface SamplePages {
  readonly router: string;
  readonly atMs: number;
  /** In the text format of Prometheus. */
  readonly metrics: string;
  readonly mesh: MeshPage;
}

/** @throws Error naming the metric that is missing */
export function readSample({ router, atMs, metrics, mesh }: SamplePages): RouterSample {
  const numberOf = (name: string): number => {
    const value = new RegExp(`^${name} (\\S+)`, "m").exec(metrics)?.[1];
    if (value === undefined) throw new Error(`${router} has no metric ${name}`);
    return Number(value);
  };
  return {
    ...{ atMs, router },
    rssMb: numberOf("process_resident_memory_bytes") / bytesPerMb,
    heapMb: numberOf("nodejs_heap_size_used_bytes") / bytesPerMb,
    handles: numberOf("process_open_fds"),
    loopMaxMs: numberOf("nodejs_eventloop_lag_max_seconds") * 1_000,
    loopP99Ms: numberOf("nodejs_eventloop_lag_p99_seconds") * 1_000,
    journalMb: mesh.journals.bytes / bytesPerMb,
    facts: mesh.targets.flatMap(({ target, epoch, sequence, isComplete, digest }) =>
      isComplete && digest !== null ? [{ target, point: `${epoch} ${sequence}`, digest }] : [],
    ),
  };
}

async function ask(url: string, signal: AbortSignal): Promise<string> {
  const response = await fetch(url, { signal });
  if (!response.ok) throw new Error(`${url} answered ${response.status}`);
  return response.text();
}
