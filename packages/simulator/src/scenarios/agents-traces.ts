import { EspalierError } from "@espalier/core";
import { agentTraceLines } from "../clients/agent-trace.ts";
import { createTraceStarts, createTraceUsers } from "../clients/trace-clients.ts";
import { readTraceLines, type TraceRequest, traceSessions } from "../workload/index.ts";
import { limitsOf, type Scenario, scaledClients, type WorkloadOptions } from "./scenario.ts";

const agentsTracesParameters = {
  users: 200,
  durationS: 600,
  /** Users begin within this time. */
  rampS: 120,
  /** Starts of sessions per second at scale 1, in the open loop. */
  startsPerS: 0.2,
  /** The invented trace. */
  synthetic: { sessions: 40, seed: 1 },
} as const;

const { users, durationS, rampS, startsPerS, synthetic } = agentsTracesParameters;

/** Lines of the trace that takes the place of the real one where that is not given. */
export function syntheticAgentTrace(): Iterable<string> {
  return agentTraceLines(synthetic);
}

let syntheticRows: readonly TraceRequest[] | undefined;

function rowsOf({ trace }: WorkloadOptions): readonly TraceRequest[] {
  if (trace !== undefined) {
    if (traceSessions(trace) !== undefined) return trace;
    const message = "agents-traces: the trace does not say what its requests wait for, as claude-code traces do";
    throw new EspalierError("config_invalid", message, { param: "trace" });
  }
  syntheticRows ??= readTraceLines("synthetic trace", syntheticAgentTrace(), { format: "claude-code" });
  return syntheticRows;
}

export const agentsTraces: Scenario = {
  name: "agents-traces",
  summary:
    "Users of coding agents, who work through recorded sessions with their times to think and sub-agents: prompts of 110,000 tokens.",
  // Sessions grow to 880,000 tokens, beyond what the preset's model takes. Its memory is kept: eight engines hold 25 M
  // tokens, what 200 users have at work.
  fleet: { preset: "b200-moe", parameters: { maxModelLength: 2 ** 20 }, engines: 8, routers: 4 },
  policies: [
    "clusterip",
    "round_robin",
    "least_connections",
    "epp_weighted",
    "dynamo",
    "least_work",
    "predicted_latency",
  ],
  sharing: ["mesh", "none"],
  variants: [
    {
      name: "starts",
      createWorkload: (options) =>
        createTraceStarts({
          ...{ seed: options.seed, rows: rowsOf(options), startsPerS: startsPerS * options.scale },
          limits: limitsOf(options, durationS),
        }),
    },
  ],
  published: [],
  durationS,
  isOpenLoop: false,
  users,
  trace: "claude_code_355.jsonl.gz",
  syntheticTrace: syntheticAgentTrace,
  createWorkload(options) {
    return createTraceUsers({
      ...{ seed: options.seed, rows: rowsOf(options), users: scaledClients(users, options), rampS },
      limits: limitsOf(options, durationS),
    });
  },
};
