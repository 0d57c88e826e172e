import { writeVarUint } from "lib0/encoding";
import { ContentAny, ContentBinary, decodeStateVector, findIndexSS, type GC, Item, UpdateEncoderV1 } from "yjs";
import type { JournalDocument } from "./journal-document.ts";
import type { ClockRange } from "./read-journal-update.ts";
import type { DocumentUpdate } from "./replicated-documents.ts";

/** What a struct takes on the wire besides its content, at most. */
const structOverheadBytes = 24;

/** @throws RangeError for bytes that are no state vector */
export function readStateVector(bytes: Uint8Array): Map<number, number> {
  try {
    return decodeStateVector(bytes);
  } catch (cause) {
    throw new RangeError("a state vector that cannot be read", { cause });
  }
}

/**
 * A journal from a clock on, in updates of about `maxBytes`, cut between items. Whoever has taken one of them has
 * everything before its end, deletions included: the first one brings all deletions up to its end, and later ones do
 * where the document lost items meanwhile, else those within it. These say again what deleted structs say, for who has
 * come by the items another way since it asked: it skips the structs.
 *
 * @param current the document, or undefined once it is gone: the updates end then
 */
export function* diffJournal(
  current: () => JournalDocument | undefined,
  fromClock: number,
  maxBytes: number,
): Generator<DocumentUpdate, void, undefined> {
  let from = fromClock;
  let deletionsSent = -1;
  for (;;) {
    const journal = current();
    if (journal === undefined || from >= journal.clock) return;
    const deletionsFrom = journal.deletionCount === deletionsSent ? from : 0;
    deletionsSent = journal.deletionCount;
    const update = encodePiece(journal, from, maxBytes, deletionsFrom);
    from = update.to;
    yield update;
  }
}

function encodePiece(journal: JournalDocument, from: number, maxBytes: number, deletionsFrom: number): DocumentUpdate {
  const { structs, client, name } = journal;
  const begin = findIndexSS(structs as (Item | GC)[], from);
  let end = begin;
  let sizeBytes = 0;
  do {
    sizeBytes += encodedBytes(structs[end]!);
    end += 1;
  } while (end < structs.length && sizeBytes + encodedBytes(structs[end]!) <= maxBytes);
  const encoder = new UpdateEncoderV1();
  const rest = encoder.restEncoder;
  writeVarUint(rest, 1);
  writeVarUint(rest, end - begin);
  encoder.writeClient(client);
  writeVarUint(rest, from);
  for (let index = begin; index < end; index++) {
    const struct = structs[index]!;
    struct.write(encoder, Math.max(0, from - struct.id.clock));
  }
  const last = structs[end - 1]!;
  const to = last.id.clock + last.length;
  const deletions = deletionsWithin(structs, deletionsFrom, to);
  writeVarUint(rest, deletions.length === 0 ? 0 : 1);
  if (deletions.length > 0) {
    writeVarUint(rest, client);
    writeVarUint(rest, deletions.length);
    for (const range of deletions) {
      writeVarUint(rest, range.from);
      writeVarUint(rest, range.to - range.from);
    }
  }
  return { name, from, to, bytes: encoder.toUint8Array() };
}

/** Clocks from `begin` to `end` (exclusive) that are deleted. */
function deletionsWithin(structs: readonly (Item | GC)[], begin: number, end: number): ClockRange[] {
  const ranges: { from: number; to: number }[] = [];
  for (let index = findIndexSS(structs as (Item | GC)[], begin); index < structs.length; index++) {
    const struct = structs[index]!;
    if (struct.id.clock >= end) break;
    if (!struct.deleted) continue;
    const from = Math.max(begin, struct.id.clock);
    const to = Math.min(end, struct.id.clock + struct.length);
    const last = ranges.at(-1);
    if (last !== undefined && last.to === from) last.to = to;
    else ranges.push({ from, to });
  }
  return ranges;
}

function encodedBytes(struct: Item | GC): number {
  if (!(struct instanceof Item)) return structOverheadBytes;
  const { content } = struct;
  if (content instanceof ContentBinary) return structOverheadBytes + content.content.length;
  if (content instanceof ContentAny) return structOverheadBytes + JSON.stringify(content.arr).length;
  return structOverheadBytes;
}
