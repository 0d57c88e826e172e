import { createSeededRandom, type Random } from "@espalier/core";

/** One line of a trace in Mooncake's format. */
interface TraceRow {
  /** Milliseconds. */
  readonly timestamp: number;
  /** Tokens. */
  readonly input_length: number;
  readonly output_length: number;
  readonly hash_ids: readonly number[];
}

/** Tokens that an id of the format stands for. */
const blockTokens = 512;
const conversations = 60;
const turns = 5;
/** First blocks that several conversations have in common. */
const systemPrompts = 30;
/** Conversations start within this time, in milliseconds of the engines, and each goes on for as long as it takes. */
const startsWithinMs = 100_000;
const meanPauseMs = 8_000;

export const traceRequests = conversations * turns;

/**
 * A trace of conversations that start with one of a few system prompts and grow by a turn and a pause at a time, as JSON
 * lines. A prompt ends in the middle of a block, which no other prompt has: what a shared cache could hold is then the
 * same whether it is counted in blocks of the trace or in the smaller ones of engines.
 */
export function conversationTrace(seed: number): string {
  const random = createSeededRandom(seed);
  const names = { next: systemPrompts };
  const rows = Array.from({ length: conversations }, () => conversation(random, names)).flat();
  rows.sort((one, other) => one.timestamp - other.timestamp);
  return rows.map((row) => `${JSON.stringify(row)}\n`).join("");
}

function conversation(random: Random, names: { next: number }): readonly TraceRow[] {
  const newBlocks = (count: number): number[] => Array.from({ length: count }, () => names.next++);
  const blocks = [random.integer(systemPrompts), ...newBlocks(2 + random.integer(2))];
  let timestamp = random.float() * startsWithinMs;
  return Array.from({ length: turns }, (_, turn) => {
    if (turn > 0) {
      blocks.push(...newBlocks(1));
      timestamp += meanPauseMs * (0.5 + random.float());
    }
    const tailTokens = 30 + random.integer(blockTokens - 60);
    return {
      timestamp: Math.round(timestamp),
      input_length: blocks.length * blockTokens + tailTokens,
      output_length: 8 + random.integer(25),
      hash_ids: [...blocks, names.next++],
    };
  });
}
