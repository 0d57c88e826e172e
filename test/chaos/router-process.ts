import { type ChildProcess, fork } from "node:child_process";
import { join } from "node:path";
import { waitFor } from "@espalier/testing";
import { type MetricsPage, parseMetrics } from "../integration/prometheus.ts";
import type { Rig } from "../integration/rig.ts";
import { tellChaos } from "./chaos-report.ts";

/** A running `espalier serve`. */
export interface RouterProcess {
  readonly id: string;
  readonly url: string;
  readonly adminUrl: string;
  readonly meshAddress: string | null;
  readonly process: ChildProcess;
  /** Its log so far, one entry per line. */
  log(): readonly LogEntry[];
  ask<Answer>(path: string): Promise<Answer>;
  mesh(): Promise<MeshPage>;
  feeds(): Promise<readonly FeedRow[]>;
  metrics(): Promise<MetricsPage>;
  signal(signal: NodeJS.Signals): void;
  /** Kills it as a crash would. */
  kill(): Promise<void>;
  /** Resolves with its exit code, null after a signal. */
  readonly exited: Promise<number | null>;
}

type LogEntry = Readonly<Record<string, unknown>> & { readonly level: string; readonly msg: string };

/** The part of `GET /admin/mesh` that tests read. */
export interface MeshPage {
  readonly backend: string;
  readonly router: string;
  readonly epoch: number;
  readonly waitingFor: readonly string[];
  readonly members: readonly {
    readonly router: string;
    readonly epoch: number;
    readonly state: string;
    readonly isLinked: boolean;
    readonly isDraining: boolean;
    readonly roundTripMs: number | null;
  }[];
  readonly load: readonly { readonly router: string; readonly leaseRemainingMs: number; readonly inFlight: number }[];
  readonly feeds: { readonly owned: number; readonly backup: number; readonly unowned: number };
  readonly facts: {
    readonly targets: number;
    readonly blocks: number;
    readonly settled: number;
    readonly digest: string;
  };
  readonly targets: readonly {
    readonly target: string;
    readonly owner: string | null;
    readonly quality: string;
    readonly progress: string;
    readonly sequence: number | null;
    readonly digest: string | null;
  }[];
}

/** A row of `GET /admin/feeds`. */
interface FeedRow {
  readonly target: string;
  readonly state: string;
  readonly reason: string;
  readonly role: string;
  readonly owner: string | null;
}

/** Seen from the root of a checkout. */
const program = "apps/router/bin/espalier.mjs";
const surroundings = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("ESPALIER_")));
/** Only to end a test that hangs: a machine that is busy elsewhere takes long to start programs. */
const startDeadlineMs = 60_000;

/**
 * Starts `espalier serve` with these flags on free ports, which the rig ends.
 *
 * @param checkout folder of the release that is run; this one by default
 */
export async function startRouter(
  rig: Rig,
  id: string,
  flags: readonly string[],
  checkout = ".",
): Promise<RouterProcess> {
  const child = fork(join(checkout, program), ["serve", "--listen-port", "0", "--admin-port", "0", ...flags], {
    // What vitest runs with says to read packages from their sources, which Node cannot do.
    execArgv: [],
    stdio: ["ignore", "ignore", "pipe", "ipc"],
    env: { ...surroundings, ESPALIER_SKIP_BUILD: "1" },
  });
  const exited = new Promise<number | null>((resolve) => child.once("exit", (code) => resolve(code)));
  rig.own(() => {
    child.kill("SIGKILL");
    return exited;
  });
  let text = "";
  child.stderr?.setEncoding("utf8").on("data", (piece: string) => {
    text += piece;
  });
  let listening: { readonly url: string; readonly adminUrl: string; readonly meshAddress: string | null } | undefined;
  child.on("message", (message: typeof listening) => {
    listening = message;
  });
  const started = await waitFor(
    () => {
      const end = child.exitCode ?? child.signalCode;
      if (end !== null) throw new Error(`${id} ended with ${end}: ${text}`);
      return listening;
    },
    { what: `start of ${id}`, deadlineMs: startDeadlineMs },
  );
  const ask = async <Answer>(path: string): Promise<Answer> => {
    const response = await fetch(started.adminUrl + path);
    if (!response.ok) throw new Error(`${path} of ${id} answered ${response.status}`);
    return (await response.json()) as Answer;
  };
  return {
    ...started,
    id,
    process: child,
    log: () => text.split("\n").flatMap(readEntry),
    ask,
    mesh: () => ask<MeshPage>("/admin/mesh"),
    feeds: async () => (await ask<{ readonly feeds: readonly FeedRow[] }>("/admin/feeds")).feeds,
    metrics: async () => parseMetrics(await (await fetch(`${started.adminUrl}/metrics`)).text()),
    signal(signal) {
      if (signal === "SIGSTOP" || signal === "SIGTERM") tellChaos({ fault: `router: ${signal}` });
      child.kill(signal);
    },
    async kill() {
      tellChaos({ fault: "router: SIGKILL" });
      child.kill("SIGKILL");
      await exited;
    },
    exited,
  };
}

/** The last line may not be whole yet. */
function readEntry(line: string): LogEntry[] {
  try {
    return [JSON.parse(line) as LogEntry];
  } catch {
    return [];
  }
}
