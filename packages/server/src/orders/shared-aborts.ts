import type { NoteChannel } from "@espalier/shared-tree";
import type { HeldRequests } from "../request/held-requests.ts";
import { createSharedOrders, orderNote } from "./shared-orders.ts";

/** UTF-8 bytes of a request id. An abort by a longer one ends only what this router holds. */
export const maxSharedRidBytes = 120;

const abortNote = orderNote(maxSharedRidBytes);

export const abortNoteLayout = abortNote.layout;

interface SharedAbortsOptions {
  readonly held: Pick<HeldRequests, "abort">;
  /** Undefined when nothing is shared. */
  readonly notes: NoteChannel | undefined;
}

/** Aborts the requests whose id begins with the given one; all for an empty id. */
export type AbortRequests = (rid: string) => void;

/** Ends what all routers hold of the requests that an RL framework aborts at one of them. */
export function createSharedAborts({ held, notes }: SharedAbortsOptions): AbortRequests {
  return createSharedOrders({
    ...{ key: "aborts", note: abortNote, maxSubjectBytes: maxSharedRidBytes, notes },
    follow: (rid) => held.abort((other) => rid === "" || other?.startsWith(rid) === true),
  });
}
