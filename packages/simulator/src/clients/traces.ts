import { createHash } from "node:crypto";
import { createSeededRandom } from "@espalier/common";
import { createVirtualTime } from "@espalier/testing";
import { type BailianRow, jitterArrivals, type Prompt, type TraceRequest } from "@espalier/workload";
import { type Conversation, createConversation } from "./conversation.ts";
import { createSender, type SendLimits } from "./session.ts";
import { blockTokens, type SimRequest, type Workload } from "./workload.ts";

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
 * name. Rows without names have the text of the trace, or else a private text; a later turn of a session continues after
 * the earlier turn's answer, or keeps as much of it as its tokens allow.
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
  /** Rows of a session that are still to come. Finished sessions are dropped. */
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

/** Bytes of text that make a token, as readers of traces count them. */
const bytesPerToken = 4;
const pieceBytes = blockTokens * bytesPerToken;

/**
 * Adds the text of a prompt, a block at a time, so that prompts that begin alike share blocks as far as their bytes
 * are the same. The roles of messages do not count, as they do not count as tokens.
 */
function sharePrompt(prompt: Prompt, { inputTokens }: TraceRequest, conversation: Conversation): void {
  const bytes = Buffer.from(textOf(prompt));
  let left = inputTokens;
  for (let at = 0; left > 0; at += pieceBytes) {
    const tokens = Math.min(blockTokens, left);
    conversation.share(nameOf(bytes.subarray(at, at + pieceBytes)), tokens);
    left -= tokens;
  }
}

function textOf(prompt: Prompt): string {
  if (typeof prompt === "string") return prompt;
  const contents = prompt.map(({ content }) => content ?? "");
  return contents.map((content) => (typeof content === "string" ? content : JSON.stringify(content))).join("");
}

/** 48 bits of the content: two different pieces out of a million have the same name with odds of 1 in 500. */
function nameOf(piece: Buffer): number {
  return createHash("sha256").update(piece).digest().readUIntLE(0, 6);
}

/** Assumed time per answer token, after which the session continues. */
const msPerAnswerToken = 20;
/** Ends a recording whose workload has no limit. */
const maxTraceMs = 48 * 3_600_000;

/**
 * The requests of a workload as rows of a trace, in order of time. Sessions continue as if every answer took 20 ms per token.
 *
 * @param onRow receives each row; rows are not kept
 */
export function recordTrace(workload: Workload, onRow: (row: BailianRow) => void): void {
  const time = createVirtualTime();
  const { clock, scheduler } = time;
  /** The last request of each session. */
  const parents = new Map<number, number>();
  workload.start({
    clock,
    scheduler,
    send(request, ended) {
      const { index, session, promptTokens, outputTokens } = request;
      const parent = parents.get(session);
      parents.set(session, index);
      onRow({
        ...{ chat: index, parent, arrivalMs: clock.nowMs() },
        ...{ inputTokens: promptTokens, outputTokens, blockIds: blockIdsOf(request) },
      });
      scheduler.after(outputTokens * msPerAnswerToken, () => {
        const endMs = clock.nowMs();
        ended({ firstTokenMs: endMs, endMs, cachedTokens: 0, error: undefined });
      });
    },
    finished() {},
  });
  time.runUntil(maxTraceMs);
}

/** Of the prompt's full blocks, in 52 bits of their chain hashes: readers of traces have other uses for larger numbers. */
function blockIdsOf({ promptTokens, chain }: SimRequest): readonly number[] {
  return Array.from(
    { length: Math.floor(promptTokens / blockTokens) },
    (_, block) => (chain[2 * block + 1]! & 0xf_ffff) * 2 ** 32 + chain[2 * block]!,
  );
}
