import type { TraceFormatReader } from "../trace-row.ts";

const header = "TIMESTAMP,ContextTokens,GeneratedTokens";

/** `2023-11-16 18:17:03.9799600` (2023 files) or `2024-05-10 00:00:00.009930+00:00` (2024 files), both in UTC. */
const timestamp = /^(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(\.\d+)?(?:\+00:00|Z)?$/;

export function isAzureHeader(line: string): boolean {
  return line.trim() === header;
}

/** Azure LLM inference traces (Azure/AzurePublicDataset): lengths and times only, so each request is its own session. */
export function createAzureReader(): TraceFormatReader {
  return {
    readRow(line) {
      if (isAzureHeader(line.text)) return undefined;
      const [time = "", context, generated] = line.text.trim().split(",");
      const parts = timestamp.exec(time);
      if (parts === null) return line.fail("TIMESTAMP", "must be a time such as 2023-11-16 18:17:03.9799600");
      const [year, month, day, hour, minute, second] = parts.slice(1, 7).map(Number);
      const wholeSecondMs = Date.UTC(year!, month! - 1, day!, hour!, minute!, second!);
      return {
        timestampMs: wholeSecondMs + Number(parts[7] ?? 0) * 1_000,
        inputTokens: line.count("ContextTokens", numberOf(context), 1),
        outputTokens: line.count("GeneratedTokens", numberOf(generated), 0),
        blockIds: undefined,
        blockTokens: 512,
        session: undefined,
      };
    },
  };
}

function numberOf(text: string | undefined): number | undefined {
  return text === undefined || text.trim() === "" ? undefined : Number(text);
}
