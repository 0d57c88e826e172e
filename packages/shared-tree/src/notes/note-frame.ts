import { ByteReader, ByteWriter } from "@espalier/core";
import { type Origin, readFrame, readOrigin, splitIntoFrames, writeOrigin } from "@espalier/mesh";

/** A longer frame is refused. */
export const maxNoteFrameBytes = 131_072;
/** A frame with more notes is refused. */
export const maxFrameNotes = 256;
/** UTF-8 bytes of a key. */
export const maxNoteKeyBytes = 255;
/** Bytes of a note's content. */
export const maxNoteBytes = 16_384;

/** The first byte of a frame of notes. */
export const noteKind = 1;

/** A note as a frame has it. */
export interface WrittenNote {
  readonly key: string;
  /** Rises with every note that an epoch of a router writes. */
  readonly counter: number;
  /** Milliseconds since it was written, as far as the frame's sender knows. */
  readonly ageMs: number;
  readonly bytes: Uint8Array;
}

export interface NoteFrame {
  readonly origin: Origin;
  readonly notes: readonly WrittenNote[];
}

/**
 * Layout: the kind, a byte; router as text; epoch and number of notes as varints; notes. A note is its key as text,
 * varints of its counter and its age in milliseconds, and its content after its length.
 */
export function writeNoteFrame({ origin, notes }: NoteFrame): Uint8Array {
  const writer = new ByteWriter();
  writer.u8(noteKind);
  writeOrigin(writer, origin);
  writer.varint(notes.length);
  for (const { key, counter, ageMs, bytes } of notes) {
    writer.text(key);
    writer.varint(counter);
    writer.varint(Math.ceil(ageMs));
    writer.bytes(bytes);
  }
  return writer.copy();
}

/**
 * Bytes after the notes are ignored, so that a later version may add to a frame.
 *
 * @throws EspalierError `mesh_frame_invalid`
 */
export function readNoteFrame(bytes: Uint8Array): NoteFrame {
  return readFrame(bytes, { what: "notes", maxBytes: maxNoteFrameBytes, read: readNotes });
}

function readNotes(bytes: Uint8Array): NoteFrame {
  const reader = new ByteReader(bytes);
  const kind = reader.u8();
  if (kind !== noteKind) throw new RangeError(`kind ${kind} is not known`);
  const origin = readOrigin(reader);
  const count = reader.varint();
  if (count > maxFrameNotes) throw new RangeError(`${count} notes are too many`);
  const notes: WrittenNote[] = [];
  for (let index = 0; index < count; index++) {
    const key = reader.text(maxNoteKeyBytes);
    const counter = reader.varint();
    const ageMs = reader.varint();
    // A copy, so that a kept note does not retain the whole frame.
    notes.push({ key, counter, ageMs, bytes: reader.bytes(maxNoteBytes).slice() });
  }
  return { origin, notes };
}

/** Bytes of a note next to its content, at most: its key, counter, age and three lengths. */
const maxNoteHeadBytes = maxNoteKeyBytes + 2 * 8 + 3 * 3;

/** Splits notes into as few lists as fit into frames; none when there are none. */
export function splitNotes(notes: readonly WrittenNote[]): readonly (readonly WrittenNote[])[] {
  return splitIntoFrames(notes, {
    maxBytes: maxNoteFrameBytes - maxNoteHeadBytes - 16,
    maxItems: maxFrameNotes,
    sizeOf: ({ bytes }) => bytes.length + maxNoteHeadBytes,
  });
}
