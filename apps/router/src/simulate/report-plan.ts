import type { SimulateFlags } from "./simulate-options.ts";

/** One section of the report: the arguments of `espalier simulate SCENARIO`. */
export interface ReportEntry {
  readonly scenario: string;
  readonly flags: SimulateFlags;
  /** Replaces the same flags in a quick report. */
  readonly quick: SimulateFlags;
}

/**
 * A report of all scenarios, and a quick one, end here and list what they left out. That of a single scenario makes all
 * of its runs.
 */
export const reportBudgetMs = { full: 29 * 60_000, quick: 170_000 } as const;

/** With several routers, each reads and shares by the real code. A single router runs faster without links. */
const full = { seeds: "3", links: "delays" } as const;
const quickly = { seeds: "1", links: "delays" } as const;

/**
 * Every scenario, cheapest first, so that those are present when time runs out. The large fleet runs for a part of its
 * 180 s: its caches are warm after half a minute.
 */
export const reportPlan: readonly ReportEntry[] = [
  { scenario: "sglang-prefix-groups", flags: { ...full, variant: "all" }, quick: { ...quickly, variant: "v0.4" } },
  { scenario: "session-affinity", flags: full, quick: quickly },
  { scenario: "a10g-8", flags: full, quick: { ...quickly, requests: "2000" } },
  { scenario: "baseten-4", flags: full, quick: { ...quickly, requests: "400" } },
  {
    scenario: "agents-300",
    flags: { ...full, policy: "clusterip,least_connections,epp_weighted,least_work,predicted_latency" },
    quick: { ...quickly, requests: "5000" },
  },
  {
    scenario: "agents-traces",
    flags: { ...full, policy: "least_connections,dynamo,predicted_latency", users: "50,200" },
    quick: { ...quickly, users: "50" },
  },
  { scenario: "rag", flags: full, quick: { ...quickly, duration: "30s" } },
  {
    scenario: "one-prompt",
    flags: { ...full, variant: "30-per-s,30-per-s-256-slots,30-per-s-2k", routers: "1,8", duration: "60s" },
    quick: { ...quickly, variant: "30-per-s", routers: "1", duration: "20s" },
  },
  ...["hot-documents", "decode-bound", "bursts", "mixed-engines", "quarter-memory", "slow-engines"].map((scenario) => ({
    scenario,
    flags: { ...full, duration: "60s" },
    quick: { ...quickly, duration: "20s" },
  })),
  { scenario: "long-and-short", flags: { ...full, duration: "300s" }, quick: { ...quickly, duration: "60s" } },
  ...["chats-beside-long", "tenants", "flash-crowd", "uneven-engines", "short-prompts", "few-slots"].map(
    (scenario) => ({
      scenario,
      flags: { ...full, duration: "60s" },
      quick: { ...quickly, duration: "10s" },
    }),
  ),
  { scenario: "reasoning", flags: { ...full, duration: "200s" }, quick: { ...quickly, duration: "90s" } },
  { scenario: "hundred-engines", flags: { ...full, duration: "20s" }, quick: { ...quickly, duration: "5s" } },
  {
    scenario: "toolagent",
    flags: { ...full, load: "0.5,0.85,0.95", duration: "60s" },
    quick: { ...quickly, load: "0.85", duration: "20s" },
  },
  {
    scenario: "slo-mix",
    flags: { ...full, variant: "load-0.7,fifo-0.7,load-1,fifo-1,unloaded" },
    quick: { ...quickly, variant: "load-0.85", duration: "30s" },
  },
  {
    scenario: "agents-swe",
    flags: { ...full, variant: "24,48,72,96,72-wait-120,96-wait-120", duration: "300s" },
    quick: { ...quickly, variant: "96-wait-120", duration: "60s" },
  },
  { scenario: "evict", flags: { ...full, variant: "1x,2x" }, quick: { ...quickly, requests: "600", variant: "1x" } },
  { scenario: "lora-64", flags: full, quick: { ...quickly, requests: "600" } },
  {
    scenario: "tiers",
    flags: { ...full, policy: "least_work,predicted_latency", variant: "cpu-credit,gpu-credit", seeds: "1" },
    quick: { ...quickly, requests: "1000", variant: "cpu-credit" },
  },
  {
    scenario: "kv-pools",
    flags: { ...full, variant: "no-pool,pool,slow-link", duration: "60s" },
    quick: { ...quickly, variant: "no-pool,pool", duration: "30s" },
  },
  ...["pd-mix", "pd-mix-long-in", "pd-mix-long-out"].map((scenario) => ({
    scenario,
    flags: { ...full, variant: "dynamic-0.85,always-0.85,never-0.85", duration: "100s" },
    quick: { variant: "dynamic-0.5", duration: "40s" },
  })),
  { scenario: "pull-ladder", flags: { ...full, variant: "all" }, quick: { ...quickly, variant: "2k,2k-computed" } },
  {
    scenario: "pull-64x16k",
    flags: { ...full, variant: "all" },
    quick: { ...quickly, variant: "8-per-s,8-per-s-computed", duration: "20s" },
  },
  {
    scenario: "pull-192x48k",
    flags: { ...full, variant: "affinity,load-aware-pull" },
    quick: { ...quickly, requests: "200", variant: "affinity,load-aware-pull" },
  },
  { scenario: "pull-surge", flags: { ...full, duration: "60s" }, quick: { ...quickly, duration: "20s" } },
  {
    scenario: "regions-3",
    flags: { ...full, seeds: "2", variant: "all", duration: "80s" },
    quick: { ...quickly, duration: "20s", policy: "predicted_latency" },
  },
  { scenario: "gorgo", flags: { ...full, variant: "all" }, quick: { ...quickly, duration: "300s" } },
  {
    scenario: "skywalker",
    flags: { ...full, variant: "chats,trees,mixed-trees,uneven-chats,uneven-chats-9" },
    quick: { ...quickly, variant: "chats", duration: "40s" },
  },
  {
    scenario: "p2p-anti-entropy",
    flags: { ...full, variant: "near-even,near-skewed,near-hotspot,far-even,far-skewed" },
    quick: { ...quickly, variant: "near-skewed", duration: "40s" },
  },
  {
    scenario: "scale-out",
    flags: { ...full, variant: "1-engines,2-engines,4-engines" },
    quick: { ...quickly, requests: "1000", variant: "4-engines" },
  },
  ...[
    { scenario: "partition", seeds: "3", duration: "90s" },
    { scenario: "router-loss", seeds: "3", duration: "90s" },
    { scenario: "join-under-load", seeds: "3", duration: "60s" },
    { scenario: "rolling-restart", seeds: "3", duration: "60s" },
    { scenario: "engine-churn", seeds: "3", duration: "40s" },
  ].map(({ scenario, ...length }) => ({
    scenario,
    flags: { policy: "predicted_latency", ...length },
    quick: { duration: "60s", engines: "24", routers: "4" },
  })),
  {
    scenario: "smg-240",
    flags: {
      ...full,
      policy: "predicted_latency",
      routers: "1,2,4,8",
      sharing: "mesh,none,events-only,gossip-1s,oracle",
      duration: "40s",
    },
    quick: { routers: "8", sharing: "mesh,none", duration: "10s", seeds: "1" },
  },
  {
    scenario: "mega",
    flags: { seeds: "1", links: "delays", policy: "predicted_latency", engines: "200", routers: "16", duration: "10s" },
    quick: { duration: "2s", engines: "40", routers: "8" },
  },
  {
    scenario: "mooncake-conversation",
    flags: { seeds: "1", links: "delays", variant: "8x3.15M,8x3.15M-scale-2,8x1.05M,8x1.05M-scale-2" },
    quick: { ...quickly, requests: "2000", variant: "8x3.15M" },
  },
  {
    scenario: "shared-prefix-150x5",
    flags: { seeds: "1", links: "delays", variant: "all" },
    quick: { ...quickly, duration: "60s" },
  },
];

/** The command that produces an entry's figures. */
export function commandOf({ scenario, flags }: Pick<ReportEntry, "scenario" | "flags">): string {
  const written = Object.entries(flags).map(([name, value]) => `--${name} ${value}`);
  return ["npx espalier simulate", scenario, ...written].join(" ");
}
