import { createHash } from "node:crypto";
import type { ReplicatedDocuments } from "@espalier/mesh";
import { applyUpdate, Doc, encodeStateVector } from "yjs";

/**
 * A hash of what a replica's journal says to whoever fetches it: its writer's clock and all live items in order, as stock Yjs
 * reads them. Undefined for a document that the replica does not have.
 */
export function journalContent(
  documents: Pick<ReplicatedDocuments, "state" | "diff">,
  name: string,
): string | undefined {
  if (documents.state(name) === undefined) return undefined;
  const doc = new Doc();
  for (const { bytes } of documents.diff(name, Uint8Array.of(0), Number.POSITIVE_INFINITY)) applyUpdate(doc, bytes);
  const hash = createHash("sha256").update(encodeStateVector(doc));
  for (const value of doc.getArray("log").toArray()) {
    if (value instanceof Uint8Array) hash.update(`${value.length}:`).update(value);
    else hash.update(`${JSON.stringify(value)};`);
  }
  return hash.digest("hex");
}
