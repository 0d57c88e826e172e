import { createSeededRandom } from "@espalier/common";
import { createConversation } from "./conversation.ts";
import { exponential } from "./draws.ts";
import { createSender, type SendLimits } from "./sender.ts";
import type { SessionScript } from "./session-script.ts";
import type { Workload } from "./workload.ts";

export interface LoadStage {
  readonly ratePerS: number;
  readonly durationS: number;
}

/** One request of a session that comes back for more, each time with a prompt from scratch. */
export interface Visit {
  readonly session: number;
  /** How often the session has asked before. */
  readonly turn: number;
  readonly script: Pick<SessionScript, "expectedTokens" | "write">;
}

export interface StagedLoadOptions {
  readonly seed: number;
  readonly stages: readonly LoadStage[];
  /** Makes the requests, from 0 up. */
  readonly visitOf: (index: number) => Visit;
  /** Requests under way at most; those that are due beyond wait in the client, in order. Without end unless given. */
  readonly maxInFlight?: number;
  readonly limits: SendLimits;
}

/**
 * Load in steps. A stage sends rate times duration requests with exponential gaps, and the next one begins when all of
 * them are answered, as inference-perf does it: so what one stage leaves waiting does not count against the next.
 */
export function createStagedLoad(options: StagedLoadOptions): Workload {
  const { seed, stages, visitOf, maxInFlight = Number.POSITIVE_INFINITY, limits } = options;
  const counts = stages.map(({ ratePerS, durationS }) => Math.round(ratePerS * durationS));
  const expectedRequests = counts.reduce((sum, count) => sum + count, 0);
  return {
    expectedRequests: Math.min(expectedRequests, limits.requests ?? expectedRequests),
    start(driver) {
      const sender = createSender(driver, limits);
      const random = createSeededRandom(seed);
      let index = 0;
      const runStage = (stage: number): void => {
        if (stage === stages.length) {
          sender.finish();
          return;
        }
        let unsent = counts[stage]!;
        let unanswered = unsent;
        let inFlight = 0;
        let due = 0;
        const meanGapMs = 1_000 / stages[stage]!.ratePerS;
        const startMs = sender.nowMs();
        let atMs = startMs;
        const answered = (): void => {
          inFlight -= 1;
          unanswered -= 1;
          if (unanswered === 0) runStage(stage + 1);
          else sendDue();
        };
        const sendDue = (): void => {
          if (due === 0 || inFlight >= maxInFlight) return;
          due -= 1;
          inFlight += 1;
          const { session, turn, script } = visitOf(index++);
          const conversation = createConversation({ seed, session, turn, expectedTokens: script.expectedTokens });
          const outputTokens = script.write(turn, conversation);
          sender.send(conversation, { outputTokens }, answered);
        };
        const arrive = (): void => {
          if (unsent === 0) return;
          unsent -= 1;
          atMs += exponential(meanGapMs, random);
          sender.after(atMs - sender.nowMs(), () => {
            due += 1;
            sendDue();
            arrive();
          });
        };
        if (unsent === 0) runStage(stage + 1);
        else arrive();
      };
      runStage(0);
    },
  };
}
