import { EspalierError } from "@espalier/core";
import type { BlockIds, Prompt, TraceAgent } from "./trace-request.ts";

/** One parsed line of a trace. */
export interface TraceRow {
  /** Milliseconds on the trace's own clock; undefined when absent. */
  readonly timestampMs: number | undefined;
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly maxOutputTokens?: number;
  readonly blockIds: BlockIds | undefined;
  readonly blockTokens: number;
  readonly sharedBlocks?: number;
  /** The conversation; undefined for a request that is its own. */
  readonly session: string | undefined;
  /** Of the session's agents; absent for its own. */
  readonly agent?: TraceAgent;
  readonly prompt?: Prompt;
  /** Rows of the same session that it waits for, all before it in the file and in time, and how long after them it is sent. */
  readonly wait?: { readonly after: readonly TraceRow[]; readonly thinkMs: number };
}

/** Reads the lines of one trace in order; it may remember earlier ones. */
export interface TraceFormatReader {
  /** @returns the requests of a line; none for one such as a header */
  readRows(line: LineFields): readonly TraceRow[];
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

/**
 * @param path the file, for messages
 * @param line the line's number in it, from 1
 */
export function createLineFields(path: string, line: number, text: string): LineFields {
  const fail = (field: string, problem: string): never => {
    throw new EspalierError("trace_invalid", `${path}:${line}: ${field}: ${problem}`, { param: field });
  };
  const count = (field: string, value: unknown, least: number): number => {
    if (typeof value === "number" && Number.isInteger(value) && value >= least && value < 2 ** 31) return value;
    return fail(field, `must be a whole number of at least ${least}, is ${show(value)}`);
  };
  return {
    text,
    object() {
      let value: unknown;
      try {
        value = JSON.parse(text);
      } catch {
        return fail("line", "is not valid JSON");
      }
      if (typeof value !== "object" || value === null || Array.isArray(value)) return fail("line", "is not an object");
      return value as Record<string, unknown>;
    },
    count,
    number(field, value) {
      return Number.isFinite(value) ? (value as number) : fail(field, `must be a number, is ${show(value)}`);
    },
    name(field, value) {
      if (typeof value === "string" && value !== "") return value;
      return Number.isFinite(value) ? String(value) : fail(field, `must be a number or a string, is ${show(value)}`);
    },
    blockIds(field, value, inputTokens, blockTokens) {
      if (!Array.isArray(value)) return fail(field, `must be a list, is ${show(value)}`);
      const full = Math.floor(inputTokens / blockTokens);
      const all = Math.ceil(inputTokens / blockTokens);
      if (value.length < full || value.length > all) {
        return fail(field, `must name ${full} or ${all} blocks for ${inputTokens} tokens, names ${value.length}`);
      }
      for (const id of value) {
        if (!Number.isSafeInteger(id) || id < 0) fail(field, `must hold whole numbers, holds ${show(id)}`);
      }
      return value as number[];
    },
    fail,
  };
}

function show(value: unknown): string {
  return value === undefined ? "absent" : (JSON.stringify(value) ?? typeof value).slice(0, 60);
}
