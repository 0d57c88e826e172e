import { createSeededRandom, type Random } from "@espalier/core";
import { createConversation } from "./conversation.ts";
import { exponential } from "./draws.ts";
import { createSender, runSession, type ScriptOf, type SendLimits, type SessionScript } from "./session.ts";
import type { Workload } from "./workload.ts";

interface OpenLoopOptions {
  readonly seed: number;
  /** Mean session starts per second; those until the session of a number starts, if they change. */
  readonly startsPerS: number | ((session: number) => number);
  /** Sessions that start at the same moment; 1 by default. */
  readonly burst?: number;
  /** Mean requests per session, for `expectedRequests`. */
  readonly meanTurns: number;
  readonly scriptOf: ScriptOf;
  /** At least one limit is required: arrivals are endless. */
  readonly limits: SendLimits;
}

/**
 * Starts sessions, or bursts of them, by a Poisson process that does not depend on the fleet's speed.
 * `expectedRequests` is exact for sessions of one request. Follow-ups due after sending ends make the actual number
 * smaller.
 *
 * @throws RangeError when the rate or the burst is not positive, or without a limit
 */
export function createOpenLoop(options: OpenLoopOptions): Workload {
  const { seed, startsPerS, scriptOf, limits, burst = 1 } = options;
  const perS = typeof startsPerS === "number" ? () => startsPerS : startsPerS;
  if (!(perS(0) > 0)) throw new RangeError(`${perS(0)} is not a valid arrival rate`);
  if (!(Number.isInteger(burst) && burst >= 1)) throw new RangeError(`${burst} is not a valid number of sessions`);
  if (limits.requests === undefined && limits.durationS === undefined) throw new RangeError("arrivals need a limit");
  const meanGapMs = (session: number): number => (1_000 * burst) / perS(session);
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
        atMs += exponential(meanGapMs(session), random);
        sender.after(atMs - sender.nowMs(), begin);
      };
      arrive();
    },
  };
}

function expected(
  { meanTurns, limits, burst = 1 }: OpenLoopOptions,
  meanGapMs: (session: number) => number,
  random: Random,
): number {
  const { requests = Number.POSITIVE_INFINITY, durationS = Number.POSITIVE_INFINITY } = limits;
  if (durationS === Number.POSITIVE_INFINITY) return requests;
  let sessions = 0;
  let atMs = exponential(meanGapMs(0), random);
  for (; atMs < durationS * 1_000 && sessions < requests; atMs += exponential(meanGapMs(sessions), random)) {
    sessions += burst;
  }
  return Math.min(requests, Math.round(sessions * meanTurns));
}

interface ClosedLoopOptions {
  readonly seed: number;
  /** Total sessions, at least 1. */
  readonly sessions: number;
  /** Concurrent sessions, or groups of them; when one ends, the next begins. */
  readonly clients: number;
  /** Sessions that begin together, and of which all must end before the client's next begin; 1 by default. */
  readonly groupSize?: number;
  /** Whether clients tell the fleet that a session is over. */
  readonly endsSessions?: boolean;
  readonly scriptOf: ScriptOf;
  readonly limits: SendLimits;
}

/** Closed loop: clients wait for answers, so the rate follows the fleet's speed. */
export function createClosedLoop(options: ClosedLoopOptions): Workload {
  const { seed, sessions, clients, groupSize, endsSessions: ends = false, scriptOf, limits } = options;
  let expectedRequests = 0;
  for (let session = 0; session < sessions; session++) expectedRequests += scriptOf(session).turns;
  return {
    expectedRequests: Math.min(expectedRequests, limits.requests ?? expectedRequests),
    start(driver) {
      const sender = createSender(driver, limits);
      let begun = 0;
      let ended = 0;
      const begin = (): void => {
        const first = begun;
        begun = Math.min(sessions, first + (groupSize ?? 1));
        let open = begun - first;
        for (let session = first; session < begun; session++) {
          const script = scriptOf(session);
          const conversation = createConversation({ seed, session, expectedTokens: script.expectedTokens });
          const group = groupSize === undefined ? {} : { group: Math.floor(session / groupSize) };
          runSession(sender, { script, conversation, ends, ...group }, () => {
            ended += 1;
            open -= 1;
            if (ended === sessions) sender.finish();
            else if (open === 0) begin();
          });
        }
      };
      for (let client = 0; client < clients; client++) begin();
    },
  };
}

interface LoadStage {
  readonly ratePerS: number;
  readonly durationS: number;
}

/** One request of a session that starts each prompt from scratch. */
interface Visit {
  readonly session: number;
  /** Earlier requests of the session. */
  readonly turn: number;
  readonly script: Pick<SessionScript, "expectedTokens" | "write">;
}

interface StagedLoadOptions {
  readonly seed: number;
  readonly stages: readonly LoadStage[];
  /** Creates the requests, from 0 up. */
  readonly visitOf: (index: number) => Visit;
  /** Maximum requests in flight; further due requests wait in the client, in order. Unbounded by default. */
  readonly maxInFlight?: number;
  readonly limits: SendLimits;
}

/**
 * Load in stages, as in inference-perf. A stage sends rate times duration requests with exponential gaps. The next
 * stage begins when all of them are answered, so a backlog of one stage does not count against the next.
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
