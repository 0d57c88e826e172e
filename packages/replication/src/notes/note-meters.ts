import type { Meter } from "@espalier/common";

/** `stale`: nothing new in it, or of this router itself; `refused`: one router or one note too many. */
export type NotesReceivedAs = "news" | "stale" | "refused" | "invalid";

/** The metrics of notes. */
export interface NoteMeters {
  received(as: NotesReceivedAs): void;
  sent(sizeBytes: number): void;
  held(notes: number): void;
}

/** Registers the metrics of notes. */
export function createNoteMeters(meter: Meter): NoteMeters {
  const received = meter.counter({
    name: "espalier_note_frames_received_total",
    help: "Frames of other routers' notes of what they have learned, by what they were good for.",
    labels: ["outcome"],
  });
  const sent = meter.counter({
    name: "espalier_note_sent_bytes_total",
    help: "Bytes of the frames of notes that this router made, each counted once however many peers it went to.",
  });
  const held = meter.gauge({
    name: "espalier_notes",
    help: "Notes of other routers that this one remembers.",
  });
  const outcomes = {
    news: received.series("news"),
    stale: received.series("stale"),
    refused: received.series("refused"),
    invalid: received.series("invalid"),
  };
  const sentSeries = sent.series();
  const heldSeries = held.series();
  return {
    received: (as) => outcomes[as].add(),
    sent: (sizeBytes) => sentSeries.add(sizeBytes),
    held: (notes) => heldSeries.set(notes),
  };
}
