import { memberKey, type Span, scanObject } from "../json-scan.ts";
import type { RequestView } from "./request-view.ts";

export interface BodyEdits {
  /** The model's name at the engine. */
  readonly model?: string | undefined;
  /** Asks the engine to report usage at the end of the stream; for views with `canAddUsage`. */
  readonly includeUsage?: true | undefined;
  /**
   * Values of top-level keys as JSON text, sent unchanged: a number may have more digits than a double can represent. A
   * key must not be `stream_options`; a `model` here replaces the other one.
   */
  readonly set?: Readonly<Record<string, string>> | undefined;
}

interface Splice extends Span {
  readonly text: string;
}

const openBrace = 0x7b;

/**
 * Changes fields of a body by replacing their bytes. Everything else (64-bit integers, unknown fields, key order, white
 * space) reaches the engine as the client sent it.
 *
 * @param body the bytes that `view` was read from
 * @returns the edited body in pieces that share memory with `body`; `[body]` when nothing changes
 */
export function editBody(body: Buffer, view: RequestView, edits: BodyEdits): readonly Buffer[] {
  const splices: Splice[] = [];
  const newMembers: string[] = [];
  const set = edits.set ?? {};
  if (edits.model !== undefined && edits.model !== view.model && set.model === undefined) {
    const value = JSON.stringify(edits.model);
    const span = view.spans.get("model");
    if (span) splices.push({ ...span, text: value });
    else newMembers.push(`"model":${value}`);
  }
  if (edits.includeUsage) {
    const span = view.spans.get("stream_options");
    if (span) splices.push(usageSplice(body, span));
    else newMembers.push('"stream_options":{"include_usage":true}');
  }
  for (const key of Object.keys(set)) {
    const value = set[key]!;
    const span = view.spans.get(key);
    if (span) splices.push({ ...span, text: value });
    else newMembers.push(`${JSON.stringify(key)}:${value}`);
  }
  if (newMembers.length > 0) {
    splices.push(insertion(body.indexOf(openBrace) + 1, newMembers.join(","), view.spans.size === 0));
  }
  return splices.length === 0 ? [body] : applySplices(body, splices);
}

/** Sets `include_usage` in the value of `stream_options`, which is an object or null. */
function usageSplice(body: Buffer, { start, end }: Span): Splice {
  const text = body.toString("latin1", start, end);
  if (text === "null") return { start, end, text: '{"include_usage":true}' };
  const members = scanObject(text, 0);
  const member = members.find((candidate) => memberKey(text, candidate) === "include_usage");
  if (member) return { start: start + member.valueStart, end: start + member.valueEnd, text: "true" };
  return insertion(start + 1, '"include_usage":true', members.length === 0);
}

function insertion(at: number, members: string, intoEmpty: boolean): Splice {
  return { start: at, end: at, text: intoEmpty ? members : `${members},` };
}

function applySplices(body: Buffer, splices: Splice[]): readonly Buffer[] {
  const pieces: Buffer[] = [];
  let at = 0;
  for (const splice of splices.sort((a, b) => a.start - b.start)) {
    pieces.push(body.subarray(at, splice.start), Buffer.from(splice.text));
    at = splice.end;
  }
  pieces.push(body.subarray(at));
  return pieces;
}
