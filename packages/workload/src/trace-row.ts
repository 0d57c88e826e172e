import type { Prompt } from "./trace-request.ts";

/** What one line of a trace says. */
export interface TraceRow {
  /** Milliseconds on the trace's own clock; undefined when the line does not say. */
  readonly timestampMs: number | undefined;
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly maxOutputTokens?: number;
  readonly blockIds: readonly number[] | undefined;
  readonly blockTokens: number;
  /** The conversation; undefined for one of its own. */
  readonly session: string | undefined;
  readonly prompt?: Prompt;
}

/** Reads the lines of one trace in order; it may remember earlier ones. */
export interface TraceFormatReader {
  /** @returns undefined for a line that holds no request, such as a header */
  readRow(line: LineFields): TraceRow | undefined;
}

/** The fields of one line, checked as they are read. Each method throws `trace_invalid` naming file, line and field. */
export interface LineFields {
  readonly text: string;
  /** The line as a JSON object. */
  object(): Readonly<Record<string, unknown>>;
  /** A whole number in [least, 2^31). */
  count(field: string, value: unknown, least: number): number;
  /** A finite number. */
  number(field: string, value: unknown): number;
  /** A number or a string, as a string. */
  name(field: string, value: unknown): string;
  /** Names of the blocks of a prompt: all of them, or all that are full. */
  blockIds(field: string, value: unknown, inputTokens: number, blockTokens: number): readonly number[];
  fail(field: string, problem: string): never;
}
