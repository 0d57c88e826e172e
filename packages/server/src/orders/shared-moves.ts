import { asEngineId, type Logger } from "@espalier/core";
import type { Fleet } from "@espalier/engines";
import type { NoteChannel } from "@espalier/shared-tree";
import type { MovableStreams } from "../request/movable-streams.ts";
import { createSharedOrders, orderNote } from "./shared-orders.ts";

/** UTF-8 bytes of an engine's id. The streams of one with a longer id move at one router only. */
const maxSharedEngineBytes = 250;

const moveNote = orderNote(maxSharedEngineBytes);

export const moveNoteLayout = moveNote.layout;

interface SharedMovesOptions {
  readonly streams: Pick<MovableStreams, "move">;
  readonly fleet: Pick<Fleet, "setDraining">;
  readonly notes: NoteChannel | undefined;
  readonly logger: Logger;
}

/** Drains an engine at all routers and moves its streams. */
export function createSharedMoves({ streams, fleet, notes, logger }: SharedMovesOptions): (engineId: string) => void {
  return createSharedOrders({
    ...{ key: "moves", note: moveNote, maxSubjectBytes: maxSharedEngineBytes, notes },
    follow(engine) {
      // The order may come before the drain that it belongs to.
      fleet.setDraining(asEngineId(engine), true);
      const { moved, stay } = streams.move(engine);
      logger.info("streams moved from a drained engine", { engine, moved, stay });
    },
  });
}
