import type { ReplicatedDocuments } from "@espalier/replication";

const fnvOffset = 0x811c9dc5;
const fnvPrime = 0x01000193;

/**
 * How far this router has a document: the clock of its writer, or of a shared document the FNV-1a hash of its state
 * vector, which is the same in two routers that have the same changes. 0 for a document it does not have.
 */
export function markOf(documents: ReplicatedDocuments, name: string): number {
  const state = documents.state(name);
  if (state === undefined) return 0;
  if (state.origin !== undefined) return state.clock;
  let hash = fnvOffset;
  for (const byte of documents.stateVector(name)) hash = Math.imul(hash ^ byte, fnvPrime);
  return hash >>> 0;
}
