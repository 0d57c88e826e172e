import type { TraceFormatReader } from "../trace-row.ts";

const blockTokens = 16;

/** One request as a line of such a trace. */
export interface BailianRow {
  readonly chat: number;
  /** The chat that it goes on with; undefined for a session's first. */
  readonly parent: number | undefined;
  readonly arrivalMs: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  /** Of the prompt's full blocks of 16 tokens, each a whole number below 2^52. */
  readonly blockIds: readonly number[];
}

/** The line of a request, without its end. */
export function bailianLine({ chat, parent, arrivalMs, inputTokens, outputTokens, blockIds }: BailianRow): string {
  return JSON.stringify({
    ...{ chat_id: chat, parent_chat_id: parent ?? -1, timestamp: arrivalMs / 1_000 },
    ...{ input_length: inputTokens, output_length: outputTokens, hash_ids: blockIds },
  });
}

/**
 * Qwen-Bailian traces (alibaba-edu/qwen-bailian-usagetraces-anon, ATC 2025): JSON lines of `chat_id`,
 * `parent_chat_id` (-1 for the first turn), `timestamp` in seconds, `input_length`, `output_length` and `hash_ids` of
 * 16-token blocks. A session is named by the first chat of its chain of parents, present in the trace or not.
 */
export function createBailianReader(): TraceFormatReader {
  const sessionOf = new Map<string, string>();
  return {
    readRow(line) {
      const row = line.object();
      const chat = line.name("chat_id", row.chat_id);
      const parent = line.name("parent_chat_id", row.parent_chat_id);
      const session = parent === "-1" ? chat : (sessionOf.get(parent) ?? parent);
      sessionOf.set(chat, session);
      const inputTokens = line.count("input_length", row.input_length, 1);
      return {
        timestampMs: line.number("timestamp", row.timestamp) * 1_000,
        inputTokens,
        outputTokens: line.count("output_length", row.output_length, 0),
        blockIds: line.blockIds("hash_ids", row.hash_ids, inputTokens, blockTokens),
        blockTokens,
        session: `chat-${session}`,
      };
    },
  };
}
