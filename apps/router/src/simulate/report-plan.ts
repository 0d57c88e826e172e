import type { SimulateFlags } from "./simulate-options.ts";

/** One section of the report: what `espalier simulate SCENARIO` is called with. */
export interface ReportEntry {
  readonly scenario: string;
  readonly flags: SimulateFlags;
  /** In place of the same flags, when the report is to be quick. */
  readonly quick: SimulateFlags;
}

/** A report ends here: what is not done by then is left out, and said to be. */
export const reportBudgetMs = { full: 29 * 60_000, quick: 170_000 } as const;

const seeds = { seeds: "3" } as const;
const quickly = { seeds: "1", links: "delays" } as const;

/**
 * Every scenario, the cheap ones first, so that those are there when time runs out. The large fleet is run for a part of
 * its 180 s: its caches are warm after a minute.
 */
export const reportPlan: readonly ReportEntry[] = [
  { scenario: "sglang-prefix-groups", flags: { ...seeds }, quick: quickly },
  { scenario: "session-affinity", flags: { ...seeds }, quick: quickly },
  { scenario: "a10g-8", flags: { ...seeds }, quick: { ...quickly, requests: "1000" } },
  { scenario: "baseten-4", flags: { ...seeds }, quick: { ...quickly, requests: "400" } },
  { scenario: "agents-300", flags: { ...seeds }, quick: { ...quickly, requests: "2000" } },
  { scenario: "rag", flags: { ...seeds }, quick: { ...quickly, duration: "60s" } },
  {
    scenario: "toolagent",
    flags: { ...seeds, load: "0.5,0.85,0.95" },
    quick: { ...quickly, load: "0.85", duration: "60s" },
  },
  {
    scenario: "slo-mix",
    flags: { ...seeds, variant: "all" },
    quick: { ...quickly, variant: "load-0.85", duration: "60s" },
  },
  { scenario: "evict", flags: { ...seeds, variant: "all" }, quick: { ...quickly, requests: "600", variant: "1x,2x" } },
  {
    scenario: "scale-out",
    flags: { ...seeds, variant: "all" },
    quick: { ...quickly, requests: "1000", variant: "1-engines,4-engines" },
  },
  { scenario: "shared-prefix-150x5", flags: { ...seeds }, quick: { ...quickly, duration: "120s" } },
  {
    scenario: "mooncake-conversation",
    flags: { ...seeds, variant: "all" },
    quick: { ...quickly, requests: "2000", variant: "8x3.15M" },
  },
  {
    scenario: "smg-240",
    flags: {
      ...seeds,
      routers: "1,2,4,8",
      sharing: "mesh,none,events-only,gossip-1s,oracle",
      links: "delays",
      duration: "60s",
    },
    quick: { ...quickly, routers: "1,8", sharing: "mesh,none,oracle", links: "delays", duration: "15s" },
  },
  ...["partition", "router-loss", "join-under-load", "rolling-restart", "engine-churn"].map((scenario) => ({
    scenario,
    flags: { policy: "least_work", duration: "90s" },
    quick: { duration: "60s", links: "delays" },
  })),
];

/** The command that makes an entry's figures. */
export function commandOf({ scenario, flags }: Pick<ReportEntry, "scenario" | "flags">): string {
  const written = Object.entries(flags).map(([name, value]) => `--${name} ${value}`);
  return ["npx espalier simulate", scenario, ...written].join(" ");
}
