/**
 * The tables of the house: which package may import which, and the few places that a rule does not cover, each with
 * its reason. A new package adds its row here and in ARCHITECTURE.md. An exception that is no longer needed fails too.
 */
export type AllowedImports = Readonly<Record<string, readonly string[] | "anything">>;

export const allowedImports: AllowedImports = {
  common: [],
  testing: ["common"],
  "json-body": [],
  openai: ["common", "json-body"],
  admission: ["common"],
  policies: ["common"],
  workers: ["common"],
  discovery: ["common"],
  config: ["common"],
  telemetry: ["common"],
  tracing: ["common"],
  "engine-model": ["common"],
  workload: ["common"],
  proxy: ["common", "openai"],
  "prefix-index": ["common"],
  "kv-events": ["common", "prefix-index"],
  tokenizer: ["common", "json-body", "prefix-index"],
  replication: ["common", "prefix-index"],
  mesh: ["common", "replication"],
  "load-driver": ["common", "workload"],
  routing: ["common", "policies", "workers", "prefix-index", "replication", "mesh"],
  disaggregation: ["common", "openai", "policies"],
  simulator: [
    "common",
    "admission",
    "testing",
    "engine-model",
    "workload",
    "policies",
    "workers",
    "prefix-index",
    "replication",
    "mesh",
    "routing",
    "disaggregation",
  ],
  server: [
    "common",
    "admission",
    "openai",
    "policies",
    "workers",
    "discovery",
    "proxy",
    "config",
    "telemetry",
    "tracing",
    "json-body",
    "prefix-index",
    "kv-events",
    "tokenizer",
    "replication",
    "mesh",
    "routing",
    "disaggregation",
  ],
  "engine-sim": ["common", "engine-model", "telemetry", "kv-events", "tokenizer"],
  dashboard: ["common"],
  bench: "anything",
  router: "anything",
};

/** What code may reach only through a port, or only in a few places. */
export type Port = "time" | "timers" | "randomness" | "console" | "environment";

export interface PortException {
  /** A file, or a folder that ends in a slash. */
  readonly path: string;
  readonly ports: readonly Port[];
  readonly reason: string;
}

export const portExceptions: readonly PortException[] = [
  { path: "packages/common/src/clock.ts", ports: ["time", "timers"], reason: "the port itself" },
  { path: "packages/common/src/random.ts", ports: ["randomness"], reason: "the port itself" },
  {
    path: "packages/mesh/src/wire/secure-nonce.ts",
    ports: ["randomness"],
    reason: "whoever sees one nonce must not guess the next; nothing depends on its value",
  },
  {
    path: "apps/router/src/processes/mesh-secret.ts",
    ports: ["randomness"],
    reason: "nobody else must guess the secret; nothing depends on its value",
  },
  { path: "packages/testing/src/virtual-time.ts", ports: ["timers"], reason: "lets promises settle" },
  { path: "packages/testing/src/wait-for.ts", ports: ["timers"], reason: "polls real programs" },
  { path: "packages/testing/src/depth.ts", ports: ["environment"], reason: "hears of `npm run test:all`" },
  { path: "packages/testing/src/fuzz/fuzz-in-file.ts", ports: ["environment"], reason: "hears of `npm run test:fuzz`" },
  { path: "packages/testing/src/shared-folder.ts", ports: ["environment"], reason: "finds the captures of engines" },
  { path: "apps/router/src/main.ts", ports: ["timers"], reason: "holds the process while a command runs" },
  {
    path: "apps/dashboard/src/follow/page-time.ts",
    ports: ["time", "timers"],
    reason: "the ports' implementation in a browser",
  },
  {
    path: "apps/router/src/commands/config-flags.ts",
    ports: ["environment"],
    reason: "the environment is one of the sources of a configuration",
  },
  {
    path: "apps/router/src/local-fleet/start-child.ts",
    ports: ["environment"],
    reason: "child processes run in the environment of their parent",
  },
];

/** Files that may use a library which another package owns. */
export const borrowedLibraries: readonly { readonly path: string; readonly reason: string }[] = [
  {
    path: "apps/dashboard/src/follow/follow-document.ts",
    reason: "the page follows documents with the stock provider, which is given a document of the library",
  },
  { path: "bench/src/bare-proxy.ts", reason: "the baseline is undici with as little around it as can be" },
  { path: "bench/src/suites/events-baseline.ts", reason: "the baseline is the library itself" },
  { path: "bench/src/suites/tokenizer-run.ts", reason: "the baseline is the reference implementation" },
];
