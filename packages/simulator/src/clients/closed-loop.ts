import { createConversation } from "./conversation.ts";
import { createSender, type SendLimits } from "./sender.ts";
import { runSession, type ScriptOf } from "./session-script.ts";
import type { Workload } from "./workload.ts";

export interface ClosedLoopOptions {
  readonly seed: number;
  /** Sessions in all, at least 1. */
  readonly sessions: number;
  /** Sessions at the same time; when one ends, the next begins. */
  readonly clients: number;
  readonly scriptOf: ScriptOf;
  readonly limits: SendLimits;
}

/** Clients that wait for their answers: the rate follows the fleet's speed. */
export function createClosedLoop({ seed, sessions, clients, scriptOf, limits }: ClosedLoopOptions): Workload {
  let expectedRequests = 0;
  for (let session = 0; session < sessions; session++) expectedRequests += scriptOf(session).turns;
  return {
    expectedRequests: Math.min(expectedRequests, limits.requests ?? expectedRequests),
    start(driver) {
      const sender = createSender(driver, limits);
      let begun = 0;
      let ended = 0;
      const begin = (): void => {
        if (begun === sessions) return;
        const session = begun++;
        const script = scriptOf(session);
        const conversation = createConversation({ seed, session, expectedTokens: script.expectedTokens });
        runSession(sender, { script, conversation }, () => {
          ended += 1;
          if (ended === sessions) sender.finish();
          else begin();
        });
      };
      for (let client = 0; client < clients; client++) begin();
    },
  };
}
