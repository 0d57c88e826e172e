import { createSeededRandom, type Random } from "@espalier/common";
import { createConversation } from "./conversation.ts";
import { exponential } from "./draws.ts";
import { createSender, type SendLimits } from "./sender.ts";
import { runSession, type ScriptOf } from "./session-script.ts";
import type { Workload } from "./workload.ts";

export interface OpenLoopOptions {
  readonly seed: number;
  /** Sessions that start in a second, on average. */
  readonly startsPerS: number;
  /** Sessions that start at one moment; 1 when left out. */
  readonly burst?: number;
  /** Requests of a session, on average: for what is expected. */
  readonly meanTurns: number;
  readonly scriptOf: ScriptOf;
  /** One of the two is needed: the arrivals have no end of their own. */
  readonly limits: SendLimits;
}

/**
 * Sessions, or bursts of them, that start by a Poisson process, whatever the fleet's speed. `expectedRequests` is exact for sessions of one
 * request; follow-ups after the end of sending make it less.
 *
 * @throws RangeError for a rate or a burst that is not positive, or without a limit
 */
export function createOpenLoop(options: OpenLoopOptions): Workload {
  const { seed, startsPerS, scriptOf, limits, burst = 1 } = options;
  if (!(startsPerS > 0)) throw new RangeError(`${startsPerS} is no rate of arrivals`);
  if (!(Number.isInteger(burst) && burst >= 1)) throw new RangeError(`${burst} is no number of sessions`);
  if (limits.requests === undefined && limits.durationS === undefined) throw new RangeError("arrivals need a limit");
  const meanGapMs = (1_000 * burst) / startsPerS;
  const gaps = (): Random => createSeededRandom(seed);
  return {
    expectedRequests: expected(options, meanGapMs, gaps()),
    start(driver) {
      const sender = createSender(driver, limits);
      const random = gaps();
      let session = 0;
      let atMs = 0;
      const begin = (): void => {
        for (let one = 0; one < burst; one++) {
          const script = scriptOf(session);
          const conversation = createConversation({ seed, session, expectedTokens: script.expectedTokens });
          session += 1;
          runSession(sender, { script, conversation }, () => {});
        }
        arrive();
      };
      const arrive = (): void => {
        atMs += exponential(meanGapMs, random);
        sender.after(atMs - sender.nowMs(), begin);
      };
      arrive();
    },
  };
}

function expected({ meanTurns, limits, burst = 1 }: OpenLoopOptions, meanGapMs: number, random: Random): number {
  const { requests = Number.POSITIVE_INFINITY, durationS = Number.POSITIVE_INFINITY } = limits;
  if (durationS === Number.POSITIVE_INFINITY) return requests;
  let sessions = -burst;
  for (let atMs = 0; atMs < durationS * 1_000; atMs += exponential(meanGapMs, random)) {
    if (sessions >= requests) break;
    sessions += burst;
  }
  return Math.min(requests, Math.round(sessions * meanTurns));
}
