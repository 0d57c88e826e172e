import { bytes, copied, list, roundedUp, struct, text, varint, versioned } from "@espalier/core";
import { frameOrigin, type Origin, readFrame, splitIntoFrames } from "@espalier/mesh";

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

const noteFrame = versioned(
  noteKind,
  struct({
    origin: frameOrigin,
    notes: list(
      struct({
        key: text(maxNoteKeyBytes),
        counter: varint(),
        ageMs: roundedUp,
        bytes: copied(bytes(maxNoteBytes)),
      }),
      maxFrameNotes,
    ),
  }),
);

export const noteFrameLayout = noteFrame.layout;

export const writeNoteFrame: (frame: NoteFrame) => Uint8Array = noteFrame.encode;

/**
 * Bytes after the notes are ignored, so that a later version may add to a frame.
 *
 * @throws EspalierError `mesh_frame_invalid`
 */
export function readNoteFrame(bytes: Uint8Array): NoteFrame {
  return readFrame(bytes, { what: "notes", maxBytes: maxNoteFrameBytes, read: noteFrame.decode });
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
