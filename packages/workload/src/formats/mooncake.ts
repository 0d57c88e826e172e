import { createSessionInference } from "../infer-session.ts";
import type { TraceFormatReader } from "../trace-row.ts";

const blockTokens = 512;

/**
 * Mooncake traces (kvcache-ai/Mooncake, FAST 2025): JSON lines of `timestamp` in ms, `input_length`, `output_length`
 * and `hash_ids` of 512-token blocks. There are no sessions in them: they are inferred from the blocks.
 */
export function createMooncakeReader(): TraceFormatReader {
  const inferSession = createSessionInference();
  return {
    readRow(line) {
      const row = line.object();
      const timestampMs = line.number("timestamp", row.timestamp);
      const inputTokens = line.count("input_length", row.input_length, 1);
      const outputTokens = line.count("output_length", row.output_length, 0);
      const blockIds = line.blockIds("hash_ids", row.hash_ids, inputTokens, blockTokens);
      const session = inferSession(blockIds.slice(0, Math.floor(inputTokens / blockTokens)));
      return { timestampMs, inputTokens, outputTokens, blockIds, blockTokens, session };
    },
  };
}
