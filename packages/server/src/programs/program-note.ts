import { answerEnds } from "@espalier/api";
import { capped, list, oneOf, roundedUp, struct, text, varint, versioned } from "@espalier/core";
import type { ProgramRow } from "./program-table.ts";

/** Rows in a note: fewer than half of what fits, if names are short. */
export const maxNoteRows = 128;
/** UTF-8 bytes of a model's, a tenant's and an engine's name, and of a source; what has longer ones is not shared. */
const maxNameBytes = 255;

const count = capped(varint, Number.MAX_SAFE_INTEGER);
const milliseconds = roundedUp;
const isOver = oneOf(false, true);

const programNote = versioned(
  3,
  list(
    struct({
      name: text(16),
      session: text(16),
      parent: text(16),
      model: text(maxNameBytes),
      source: text(maxNameBytes),
      tenant: text(maxNameBytes),
      engine: text(maxNameBytes),
      queued: count,
      running: count,
      steps: count,
      failed: count,
      answerEnd: oneOf(undefined, ...answerEnds),
      contextTokens: count,
      promptKey: count,
      promptTokens: count,
      cachedTokens: count,
      outputTokens: count,
      queuedMs: milliseconds,
      longestQueuedMs: milliseconds,
      ageMs: milliseconds,
      idleMs: milliseconds,
      isOver,
    }),
    maxNoteRows,
  ),
);

export const programNoteLayout = programNote.layout;

/**
 * As many rows as fit, from the end of the list: those used latest.
 *
 * @param maxBytes of the note
 */
export function writeProgramNote(rows: readonly ProgramRow[], maxBytes: number): Uint8Array {
  for (let kept = rows.filter(isShort).slice(-maxNoteRows); ; kept = kept.slice(Math.ceil(kept.length / 4))) {
    const note = programNote.encode(kept);
    if (note.length <= maxBytes) return note;
  }
}

/** @throws RangeError for bytes that are not such a note */
export const readProgramNote: (bytes: Uint8Array) => readonly ProgramRow[] = programNote.decode;

const isShort = ({ model, source, tenant, engine }: ProgramRow): boolean =>
  [model, source, tenant, engine].every((name) => Buffer.byteLength(name) <= maxNameBytes);
