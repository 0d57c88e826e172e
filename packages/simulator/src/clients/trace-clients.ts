import { createSeededRandom } from "@espalier/core";
import { runTraceSession, type TraceRequest, type TraceSession, traceSessions } from "../workload/index.ts";
import { createConversation } from "./conversation.ts";
import { exponential, shuffled } from "./draws.ts";
import { createSender, type SendLimits } from "./session.ts";
import { writeBlocks } from "./traces.ts";
import type { Workload } from "./workload.ts";

interface TraceClientsOptions {
  readonly seed: number;
  /** Each says what it waits for. */
  readonly rows: readonly TraceRequest[];
  /** At least one limit is required: sessions are repeated without end. */
  readonly limits: SendLimits;
}

interface TraceUsersOptions extends TraceClientsOptions {
  /** Users at the same time, at least 1. When a user's session ends, the next one begins at once. */
  readonly users: number;
  /** Users begin at times drawn from this stretch, so that their first prompts do not come all at once. */
  readonly rampS: number;
}

/**
 * Closed loop: users who each work through sessions of a trace, one after the other, with the trace's times to think and
 * its sub-agents.
 *
 * @throws RangeError without a limit, and for rows that do not say what they wait for
 */
export function createTraceUsers(options: TraceUsersOptions): Workload {
  const { seed, users, rampS } = options;
  return createTraceClients(options, ({ after, beginSession }) => {
    const random = createSeededRandom(seed);
    const next = (): void => beginSession(next);
    for (let user = 0; user < users; user++) after(random.float() * rampS * 1_000, next);
  });
}

interface TraceStartsOptions extends TraceClientsOptions {
  /** Mean starts of sessions per second. */
  readonly startsPerS: number;
}

/**
 * Open loop: sessions of a trace begin by a Poisson process, however fast the fleet is. Within a session, requests wait
 * for answers.
 *
 * @throws RangeError for a rate that is not positive, without a limit, and for rows that do not say what they wait for
 */
export function createTraceStarts(options: TraceStartsOptions): Workload {
  const { seed, startsPerS } = options;
  if (!(startsPerS > 0)) throw new RangeError(`${startsPerS} is not a valid session rate`);
  return createTraceClients(options, ({ after, beginSession }) => {
    const random = createSeededRandom(seed);
    const begin = (): void => {
      beginSession(() => {});
      arrive();
    };
    const arrive = (): void => after(exponential(1_000 / startsPerS, random), begin);
    arrive();
  });
}

interface Stage {
  after(delayMs: number, task: () => void): void;
  /** Begins the next session. */
  beginSession(done: () => void): void;
}

function createTraceClients({ seed, rows, limits }: TraceClientsOptions, begin: (stage: Stage) => void): Workload {
  if (limits.requests === undefined && limits.durationS === undefined) throw new RangeError("sessions need a limit");
  const sessions = traceSessions(rows);
  if (sessions === undefined || sessions.length === 0) throw new RangeError("the rows do not say what they wait for");
  return {
    expectedRequests: limits.requests ?? rows.length,
    start(driver) {
      const sender = createSender(driver, limits);
      const order = shuffled(sessions.length, seed);
      let begun = 0;
      begin({
        after: sender.after,
        beginSession(done) {
          const number = begun++;
          const lap = Math.floor(number / order.length);
          const session: TraceSession = sessions[order[number % order.length]!]!;
          const { after } = sender;
          const send = (row: TraceRequest, ended: () => void): void => {
            const { turn, inputTokens, outputTokens } = row;
            const expectedTokens = inputTokens + outputTokens;
            const conversation = createConversation({ seed, session: number, turn, expectedTokens });
            writeBlocks(row, conversation, lap * lapIds);
            sender.send(conversation, { outputTokens }, ended);
          };
          runTraceSession(session, { after, send }, done);
        },
      });
    },
  };
}

/** Distance between the names of a session's own blocks from one time to the next: more than a trace has. */
const lapIds = 2 ** 32;
