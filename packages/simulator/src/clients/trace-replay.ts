import { createSeededRandom } from "@espalier/common";
import { jitterArrivals, type TraceRequest } from "@espalier/workload";
import { type Conversation, createConversation } from "./conversation.ts";
import { sharePrompt } from "./prompt-pieces.ts";
import { createSender, type SendLimits } from "./sender.ts";
import type { Workload } from "./workload.ts";

export interface TraceReplayOptions {
  readonly seed: number;
  /** In order of arrival. */
  readonly rows: readonly TraceRequest[];
  /** So many times as fast as the trace. */
  readonly speed: number;
  /** Set when the times of the trace are rounded to steps: arrivals are spread over theirs. */
  readonly stepMs?: number | undefined;
  readonly limits: SendLimits;
}

/**
 * Sends the rows of a trace at their times. Blocks that the trace names are the same text where they have the same
 * name. Rows without names have their own text, if it is known, and a text of their own otherwise; a later turn of a
 * session goes on where the earlier turn's answer ended, or has as much of it as its tokens allow.
 */
export function createTraceReplay(options: TraceReplayOptions): Workload {
  const { seed, speed, stepMs, limits } = options;
  const taken = withinLimits(options);
  return {
    expectedRequests: taken.length,
    start(driver) {
      const sender = createSender(driver, limits);
      const random = createSeededRandom(seed);
      const rows = stepMs === undefined ? taken : jitterArrivals(taken, { stepMs, random });
      const write = createRowWriter(seed, rows);
      let next = 0;
      const dueMs = (at: number): number => rows[at]!.arrivalMs / speed;
      // The time at which a timer fires may fall short of the one it was set for by a rounding error, which no further
      // timer would make up for: a row is due when its timer says so.
      const sendDue = (isNextDue: boolean): void => {
        for (let isDue = isNextDue; next < rows.length && (isDue || dueMs(next) <= sender.nowMs()); isDue = false) {
          const row = rows[next++]!;
          const { outputTokens, maxOutputTokens } = row;
          sender.send(write(row), { outputTokens, maxOutputTokens }, () => {});
        }
        if (next === rows.length) sender.finish();
        else sender.after(dueMs(next) - sender.nowMs(), () => sendDue(true));
      };
      sendDue(false);
    },
  };
}

/** Rows whose steps lie wholly inside the duration, so that jitter moves none of them past it. */
function withinLimits({ rows, speed, stepMs = 0, limits }: TraceReplayOptions): readonly TraceRequest[] {
  const { requests = Number.POSITIVE_INFINITY, durationS = Number.POSITIVE_INFINITY } = limits;
  const endMs = durationS * 1_000 * speed - stepMs;
  const after = rows.findIndex(({ arrivalMs }) => arrivalMs >= endMs);
  return rows.slice(0, Math.min(requests, after === -1 ? rows.length : after));
}

/** Makes prompts of rows, which it is given in order. */
function createRowWriter(seed: number, rows: readonly TraceRequest[]): (row: TraceRequest) => Conversation {
  const numbers = new Map<string, number>();
  /** Rows of a session that are still to come: what nobody will go on with is forgotten. */
  const coming = new Map<string, number>();
  const open = new Map<string, Conversation>();
  for (const { session } of rows) {
    if (!numbers.has(session)) numbers.set(session, numbers.size);
    coming.set(session, (coming.get(session) ?? 0) + 1);
  }
  return (row) => {
    const { session, turn, inputTokens, outputTokens } = row;
    const left = coming.get(session)! - 1;
    coming.set(session, left);
    const expectedTokens = inputTokens + outputTokens;
    const earlier = open.get(session);
    const conversation = earlier ?? createConversation({ seed, session: numbers.get(session)!, turn, expectedTokens });
    if (row.blockIds !== undefined) {
      writeBlocks(row, conversation);
      return conversation;
    }
    if (left === 0) open.delete(session);
    else open.set(session, conversation);
    if (earlier === undefined && row.prompt !== undefined) sharePrompt(row.prompt, row, conversation);
    if (conversation.tokens > inputTokens) conversation.cut(inputTokens);
    conversation.own(inputTokens - conversation.tokens);
    return conversation;
  };
}

function writeBlocks(row: TraceRequest, conversation: Conversation): void {
  const { inputTokens, blockIds = [], blockTokens } = row;
  let left = inputTokens;
  for (const id of blockIds) {
    const tokens = Math.min(blockTokens, left);
    conversation.share(id, tokens);
    left -= tokens;
  }
  conversation.own(left);
}
