import { createOpenLoop } from "../../src/clients/loops.ts";
import { type ChatParameters, chatScripts } from "../../src/clients/scripts.ts";
import type { SimRequest } from "../../src/clients/workload.ts";
import type { FaultName } from "../../src/faults.ts";
import type { RunOptions } from "../../src/run.ts";
import type { Scenario } from "../../src/scenarios/scenario.ts";

const chats: ChatParameters = {
  groups: 12,
  sharedTokens: 1_000,
  sharedShare: 0.7,
  firstTokens: 600,
  newTokens: 200,
  outputTokens: 60,
  followups: { mean: 1 },
  thinkMeanMs: 1_000,
  thinksFirst: false,
};

export interface SmallScenarioOptions {
  readonly chats?: Partial<ChatParameters>;
  readonly startsPerS?: number;
  readonly durationS?: number;
  readonly fault?: FaultName;
  /** Told of every request when it is sent. */
  readonly onSend?: (request: SimRequest) => void;
}

/** Conversations with shared beginnings, like those of `smg-240` but shorter. */
export function smallScenario(options: SmallScenarioOptions = {}): Scenario {
  const { startsPerS = 8, durationS = 4, fault, onSend = () => {} } = options;
  const parameters: ChatParameters = { ...chats, ...options.chats };
  return {
    name: "small",
    summary: "A few conversations.",
    fleet: { preset: "smg-generic", parameters: { blockCount: 2_000 }, engines: 4, routers: 2 },
    policies: ["least_work"],
    variants: [],
    published: [],
    durationS,
    isOpenLoop: true,
    ...(fault && { fault }),
    createWorkload({ seed, scale, requests, durationS: limitS = durationS }) {
      const limits = requests === undefined ? { durationS: limitS, requests } : { requests, durationS: undefined };
      const workload = createOpenLoop({
        ...{ seed, startsPerS: startsPerS * scale, meanTurns: 2, limits },
        scriptOf: chatScripts(parameters, { seed }),
      });
      return {
        expectedRequests: workload.expectedRequests,
        start: (driver) =>
          workload.start({
            ...driver,
            send(request, ended) {
              onSend(request);
              driver.send(request, ended);
            },
          }),
      };
    },
  };
}

/** A run of two routers and four engines. */
export function smallRun(options: Partial<RunOptions> = {}): RunOptions {
  return {
    ...{ scenario: smallScenario(), policy: "least_work", routers: 2, engines: 4 },
    ...{ sharing: "mesh", links: "delays", seed: 1, scale: 1 },
    ...options,
  };
}
