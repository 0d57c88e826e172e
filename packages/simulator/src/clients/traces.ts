import { createHash } from "node:crypto";
import { createSeededRandom } from "@espalier/core";
import { createVirtualTime } from "@espalier/testing";
import { type BailianRow, jitterArrivals, type Prompt, type TraceRequest } from "../workload/index.ts";
import { type Conversation, createConversation } from "./conversation.ts";
import { createSender, type SendLimits } from "./session.ts";
import { blockTokens, type SimRequest, type Workload } from "./workload.ts";

export interface TraceReplayOptions {
  readonly seed: number;
  /** In order of arrival. */
  readonly rows: readonly TraceRequest[];
  /** Replay speed as a multiple of the trace's. */
  readonly speed: number;
  /** Set when the trace rounds its times to steps: arrivals are spread over their step. */
  readonly stepMs?: number | undefined;
  readonly limits: SendLimits;
}

/**
 * Sends the rows of a trace at their times. Blocks with the same name in the trace get the same text. Rows without
 * names use the text of the trace, or else a private text. A later turn of a session continues after the earlier turn's
 * answer, or keeps as much of it as its tokens allow.
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
      // Rounding can make a timer fire slightly before the time it was set for, and no further timer would make up for
      // it. A row is therefore due when its timer fires.
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

/** Rows whose steps lie entirely inside the duration, so that jitter moves none of them past it. */
function withinLimits({ rows, speed, stepMs = 0, limits }: TraceReplayOptions): readonly TraceRequest[] {
  const { requests = Number.POSITIVE_INFINITY, durationS = Number.POSITIVE_INFINITY } = limits;
  const endMs = durationS * 1_000 * speed - stepMs;
  const after = rows.findIndex(({ arrivalMs }) => arrivalMs >= endMs);
  return rows.slice(0, Math.min(requests, after === -1 ? rows.length : after));
}

/** Routers know an agent of a session as a session of its own. */
const programOf = ({ session, agent }: TraceRequest): string => (agent ? `${session}/${agent.name}` : session);

/** Creates the prompts of rows, which it receives in order. */
function createRowWriter(seed: number, rows: readonly TraceRequest[]): (row: TraceRequest) => Conversation {
  const numbers = new Map<string, number>();
  /** Remaining rows of a session. Finished sessions are dropped. */
  const coming = new Map<string, number>();
  const open = new Map<string, Conversation>();
  for (const row of rows) {
    const session = programOf(row);
    if (!numbers.has(session)) numbers.set(session, numbers.size);
    coming.set(session, (coming.get(session) ?? 0) + 1);
  }
  return (row) => {
    const { turn, inputTokens, outputTokens } = row;
    const session = programOf(row);
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

/**
 * Appends the blocks of a row that has names for them, and a private text for the rest.
 *
 * @param ownOffset added to the names of blocks that only its session has, when a session is played again
 */
export function writeBlocks(row: TraceRequest, conversation: Conversation, ownOffset = 0): void {
  const { inputTokens, blockIds = [], blockTokens, sharedBlocks = 0 } = row;
  let left = inputTokens;
  for (let place = 0; place < blockIds.length; place++) {
    const tokens = Math.min(blockTokens, left);
    conversation.share(blockIds[place]! + (place < sharedBlocks ? 0 : ownOffset), tokens);
    left -= tokens;
  }
  conversation.own(left);
}

/** Bytes of text per token, as trace readers count them. */
const bytesPerToken = 4;
const pieceBytes = blockTokens * bytesPerToken;

/**
 * Appends the text of a prompt block by block. Prompts share blocks as far as their bytes are the same. The roles of
 * messages are ignored, because they do not count as tokens.
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

/** 48 bits of the content: among a million distinct pieces, the odds that two get the same name are 1 in 500. */
function nameOf(piece: Buffer): number {
  return createHash("sha256").update(piece).digest().readUIntLE(0, 6);
}

/** Assumed time per answer token, after which the session continues. */
const msPerAnswerToken = 20;
/** Ends the recording of a workload without a limit. */
const maxTraceMs = 48 * 3_600_000;

/**
 * Records the requests of a workload as rows of a trace, in order of time. Sessions continue as if every answer took 20
 * ms per token.
 *
 * @param onRow receives each row; rows are not kept
 */
export function recordTrace(workload: Workload, onRow: (row: BailianRow) => void): void {
  const time = createVirtualTime();
  const { clock, scheduler } = time;
  /** The previous request of each session. */
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

/**
 * Names of the prompt's full blocks: 52 bits of their chain hashes, because trace readers give larger numbers another
 * meaning.
 */
function blockIdsOf({ promptTokens, chain }: SimRequest): readonly number[] {
  return Array.from(
    { length: Math.floor(promptTokens / blockTokens) },
    (_, block) => (chain[2 * block + 1]! & 0xf_ffff) * 2 ** 32 + chain[2 * block]!,
  );
}
