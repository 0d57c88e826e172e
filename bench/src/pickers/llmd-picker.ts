import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { CorePlan } from "../support/cpu-pinning.ts";
import { startForeignProgram } from "../support/foreign-process.ts";
import { freePorts } from "../support/free-ports.ts";
import type { WaitPorts } from "../support/until.ts";
import type { GoSource } from "./build-go-program.ts";

const commit = "ebab687927f5331c1b39defcb579a07951bce56c";

/** llm-d's router of 2026-08-21, after its release 0.9.0. Its Dockerfile builds the picker with these flags. */
export const llmdSource: GoSource = {
  name: "llm-d-picker",
  repository: "https://github.com/llm-d/llm-d-router",
  commit,
  package: "./cmd/epp",
  linkerFlags: `-s -w -X github.com/llm-d/llm-d-router/version.CommitSHA=${commit}`,
};

/** A running picker. Its listeners have no TLS. */
export interface RunningPicker {
  /** Where gateways ask it. */
  readonly port: number;
  readonly healthPort: number;
  readonly pid: number;
  stop(): Promise<void>;
}

export interface StartPickerOptions {
  /** Path of the program. */
  readonly program: string;
  /** With an IPv4 address and a port each. */
  readonly engineUrls: readonly string[];
  /** The core that it may use; all cores when undefined. */
  readonly plan: CorePlan | undefined;
}

const name = "llm-d's picker";
const startTimeoutMs = 60_000;

/**
 * llm-d's own recommendation for a pool without KV events (its perf configuration `optimized-baseline`): prefixes as it
 * predicts them, queues, KV blocks, and engines in turn for prompts that no cache holds.
 */
const scorers: Readonly<Record<string, number>> = {
  "queue-scorer": 2,
  "kv-cache-utilization-scorer": 2,
  "prefix-cache-scorer": 3,
  "no-hit-lru-scorer": 2,
};

/**
 * Starts llm-d's picker without a cluster, and waits until it has all engines. It reads the engines from a file and their
 * metrics every 50 ms, its default. It logs nothing for a request.
 *
 * @throws Error with its last output when it ends or lacks an engine after 60 s
 */
export async function startLlmdPicker(
  { program, engineUrls, plan }: StartPickerOptions,
  ports: WaitPorts,
): Promise<RunningPicker> {
  const [port = 0, healthPort = 0, metricsPort = 0] = await freePorts(3);
  const folder = mkdtempSync(join(tmpdir(), "espalier-bench-llm-d-"));
  const enginesFile = join(folder, "endpoints.json");
  const configFile = join(folder, "epp.json");
  writeFileSync(enginesFile, JSON.stringify({ endpoints: engineUrls.map(endpointOf) }));
  writeFileSync(configFile, JSON.stringify(llmdConfiguration(enginesFile)));
  const flags = [
    ...["--config-file", configFile, "--pool-name", "bench", "--pool-namespace", "default"],
    ...["--grpc-port", String(port), "--grpc-health-port", String(healthPort), "--metrics-port", String(metricsPort)],
    ...["--secure-serving=false", "--metrics-endpoint-auth=false", "--tracing=false", "--enable-pprof=false"],
    ...["--health-checking", "-v", "1"],
  ];
  const missing = async (): Promise<string | undefined> => {
    const found = await enginesOf(`http://127.0.0.1:${metricsPort}/metrics`);
    return found === engineUrls.length ? undefined : `${name} has ${found} of ${engineUrls.length} engines`;
  };
  const started = { name, command: [program, ...flags], folder, plan, startTimeoutMs };
  return { port, healthPort, ...(await startForeignProgram(started, missing, ports)) };
}

function endpointOf(url: string, at: number): object {
  const { hostname, port } = new URL(url);
  return { name: `engine-${at}`, address: hostname, port };
}

/** An `EndpointPickerConfig`; JSON is YAML. @param enginesFile absolute path of the list of engines */
export function llmdConfiguration(enginesFile: string): object {
  const prefixes = { type: "approx-prefix-cache-producer", parameters: { maxPrefixTokensToMatch: 100_000 } };
  return {
    apiVersion: "llm-d.ai/v1alpha1",
    kind: "EndpointPickerConfig",
    plugins: [
      { type: "file-discovery", parameters: { path: enginesFile } },
      prefixes,
      ...Object.keys(scorers).map((type) => ({ type })),
    ],
    schedulingProfiles: [
      {
        name: "default",
        plugins: Object.entries(scorers).map(([pluginRef, weight]) => ({ pluginRef, weight })),
      },
    ],
    dataLayer: { discovery: { pluginRef: "file-discovery" } },
  };
}

/** The engines that it counts as ready; 0 while it does not answer. Its gauge is renewed every five seconds. */
async function enginesOf(url: string): Promise<number> {
  try {
    const text = await (await fetch(url)).text();
    return Number(/^llm_d_epp_ready_endpoints\{[^}]*\} (\d+)$/m.exec(text)?.[1] ?? 0);
  } catch {
    return 0;
  }
}
