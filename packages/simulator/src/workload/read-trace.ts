import { createReadStream } from "node:fs";
import { open } from "node:fs/promises";
import { pipeline, type Readable } from "node:stream";
import { createGunzip } from "node:zlib";
import { EspalierError } from "@espalier/core";
import { createClaudeCodeReader } from "./claude-code-trace.ts";
import {
  createAzureReader,
  createBailianReader,
  createMooncakeReader,
  createPromptsReader,
  isAzureHeader,
} from "./trace-formats.ts";
import { createLineFields, type LineFields, type TraceFormatReader, type TraceRow } from "./trace-line.ts";
import type { TraceRequest } from "./trace-request.ts";

/** The file format of a trace. */
export type TraceFormat = "mooncake" | "bailian" | "azure" | "prompts" | "claude-code";

const readers: Readonly<Record<TraceFormat, () => TraceFormatReader>> = {
  mooncake: createMooncakeReader,
  bailian: createBailianReader,
  azure: createAzureReader,
  prompts: createPromptsReader,
  "claude-code": createClaudeCodeReader,
};

export const traceFormats = Object.keys(readers) as readonly TraceFormat[];

/** A longer trace is refused unless a limit selects its beginning. */
export const maxTraceRequests = 1_000_000;

export interface ReadTraceOptions {
  /** Detected from the first line by default. */
  readonly format?: TraceFormat;
  /** Reads this many requests, at least one, and ignores the rest of the file. */
  readonly limit?: number;
}

/**
 * Reads a trace into memory, in order of arrival. The file may be gzipped. Blank lines are skipped.
 *
 * @throws EspalierError `trace_invalid` naming the file, the line and the field; `trace_unreadable`
 */
export async function readTrace(path: string, options: ReadTraceOptions = {}): Promise<readonly TraceRequest[]> {
  const rows = createRowCollector(path, options);
  for await (const text of readLines(path)) if (!rows.add(text)) break;
  return rows.end();
}

/**
 * Reads the lines of a trace that is in memory.
 *
 * @param name of the trace, for messages
 * @throws EspalierError `trace_invalid` naming the trace, the line and the field
 */
export function readTraceLines(
  name: string,
  lines: Iterable<string>,
  options: ReadTraceOptions = {},
): readonly TraceRequest[] {
  const rows = createRowCollector(name, options);
  for (const text of lines) if (!rows.add(text)) break;
  return rows.end();
}

interface RowCollector {
  /** @returns whether more lines are wanted */
  add(text: string): boolean;
  end(): readonly TraceRequest[];
}

function createRowCollector(path: string, options: ReadTraceOptions): RowCollector {
  const { format, limit = Number.POSITIVE_INFINITY } = options;
  const rows: TraceRow[] = [];
  let reader: TraceFormatReader | undefined;
  let lineNumber = 0;
  return {
    add(text) {
      lineNumber += 1;
      if (text.trim() === "") return true;
      const line = createLineFields(path, lineNumber, text);
      reader ??= readers[format ?? detectFormat(line)]();
      for (const row of reader.readRows(line)) {
        if (rows.length >= limit) break;
        if (rows.length === maxTraceRequests) line.fail("line", `more than ${maxTraceRequests} requests: set a limit`);
        rows.push(row);
      }
      return rows.length < limit;
    },
    end() {
      if (rows.length === 0) throw new EspalierError("trace_invalid", `${path}: holds no request`, { param: "line" });
      return arrange(rows);
    },
  };
}

function detectFormat(line: LineFields): TraceFormat {
  if (isAzureHeader(line.text)) return "azure";
  if (!line.text.trimStart().startsWith("{")) return line.fail("line", `is the start of none of ${formatList}`);
  const row = line.object();
  if ("prompt" in row || "messages" in row) return "prompts";
  if ("chat_id" in row) return "bailian";
  if ("requests" in row) return "claude-code";
  if ("hash_ids" in row) return "mooncake";
  return line.fail("line", `is the start of none of ${formatList}`);
}

const formatList = traceFormats.join(", ");

/** Sorts rows by arrival, counted from the first one, and numbers the turns of each session. */
function arrange(rows: readonly TraceRow[]): TraceRequest[] {
  let previousMs = 0;
  const timed = rows.map((row, position) => {
    // A row without a time arrives with the previous one.
    previousMs = row.timestampMs ?? previousMs;
    return { row, position, timestampMs: previousMs };
  });
  timed.sort((a, b) => a.timestampMs - b.timestampMs || a.position - b.position);
  const startMs = timed[0]!.timestampMs;
  const turns = new Map<string, number>();
  /** Turns of the rows that others may wait for. */
  const turnOf = new Map<TraceRow, number>();
  return timed.map(({ row, timestampMs }, index) => {
    const session = row.session ?? `request-${index}`;
    const turn = turns.get(session) ?? 0;
    turns.set(session, turn + 1);
    if (row.wait !== undefined) turnOf.set(row, turn);
    return {
      index,
      arrivalMs: timestampMs - startMs,
      inputTokens: row.inputTokens,
      outputTokens: Math.max(1, row.outputTokens),
      ...(row.maxOutputTokens === undefined ? {} : { maxOutputTokens: row.maxOutputTokens }),
      blockIds: row.blockIds,
      blockTokens: row.blockTokens,
      ...(row.sharedBlocks === undefined ? {} : { sharedBlocks: row.sharedBlocks }),
      session,
      ...(row.agent === undefined ? {} : { agent: row.agent }),
      turn,
      ...(row.prompt === undefined ? {} : { prompt: row.prompt }),
      ...(row.wait === undefined
        ? {}
        : { wait: { after: row.wait.after.map((earlier) => turnOf.get(earlier)!), thinkMs: row.wait.thinkMs } }),
    };
  });
}

/** The longest line of a trace, in bytes. */
export const maxLineBytes = 16 * 1024 * 1024;

const newline = 0x0a;

/**
 * Streams the lines of a text file, gzipped or not (detected by its first bytes), without their line ends.
 *
 * @throws EspalierError `trace_unreadable` when the file cannot be read or is damaged, `trace_invalid` for a line over
 *   `maxLineBytes`
 */
async function* readLines(path: string): AsyncGenerator<string, void, undefined> {
  let line = 1;
  const invalid = (problem: string): EspalierError =>
    new EspalierError("trace_invalid", `${path}:${line}: ${problem}`, { param: "line" });
  let pieces: Buffer[] = [];
  let pieceBytes = 0;
  const keep = (piece: Buffer): void => {
    pieceBytes += piece.length;
    if (pieceBytes > maxLineBytes) throw invalid(`the line is longer than ${maxLineBytes} bytes`);
    pieces.push(piece);
  };
  const takeLine = (): string => {
    const text = Buffer.concat(pieces, pieceBytes).toString("utf8");
    pieces = [];
    pieceBytes = 0;
    return text.endsWith("\r") ? text.slice(0, -1) : text;
  };
  try {
    for await (const chunk of await openText(path)) {
      let from = 0;
      for (let end = chunk.indexOf(newline); end !== -1; end = chunk.indexOf(newline, from)) {
        keep(chunk.subarray(from, end));
        yield takeLine();
        line += 1;
        from = end + 1;
      }
      keep(chunk.subarray(from));
    }
    if (pieceBytes > 0) yield takeLine();
  } catch (error) {
    if (error instanceof EspalierError) throw error;
    const reason = error instanceof Error ? error.message : String(error);
    throw new EspalierError("trace_unreadable", `Cannot read ${path}: ${reason}`, { cause: error });
  }
}

async function openText(path: string): Promise<AsyncIterable<Buffer>> {
  const magic = Buffer.alloc(2);
  const file = await open(path);
  try {
    await file.read(magic, 0, 2, 0);
  } finally {
    await file.close();
  }
  const bytes: Readable = createReadStream(path);
  // The iteration reports the errors of either stream; without the callback they would be thrown a second time.
  return magic[0] === 0x1f && magic[1] === 0x8b ? pipeline(bytes, createGunzip(), () => {}) : bytes;
}
