import type { Cancel, Clock, Meter, Scheduler, Startable, TargetIndex } from "@espalier/common";
import type { Note, NoteChannel } from "@espalier/replication";
import { type CopyRents, RentLedger } from "./copy-rents.ts";
import { readRentNote, writeRentNote } from "./rent-note.ts";

export interface SharedRentsOptions {
  /** Where routers tell each other; undefined where they do not. */
  readonly board: NoteChannel | undefined;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly meter: Meter;
}

/** The rents of all routers. */
export interface SharedRents extends CopyRents, Startable {}

/** Rents are told together so often; that a copy is made is told at once, for others would make it again. */
export const tellRentsMs = 25;
/** What the note is about. */
const noteKey = "rents";

/** Tells and hears nothing before `start`, and nothing where there is no board. */
export function createSharedRents({ board, clock, scheduler, meter }: SharedRentsOptions): SharedRents {
  const ledger = new RentLedger(() => clock.nowMs());
  const received = meter.counter({
    name: "espalier_copy_rents_received_total",
    help: "Notes of other routers on what prompts that begin alike have overpaid, by whether they could be read.",
    labels: ["outcome"],
  });
  const outcomes = { taken: received.series("taken"), invalid: received.series("invalid") };
  let cancelTell: Cancel | undefined;
  let cancels: readonly Cancel[] = [];
  let isStarted = false;
  let toldVersion = 0;
  const tell = (): void => {
    cancelTell?.();
    cancelTell = undefined;
    if (!board || ledger.version === toldVersion) return;
    toldVersion = ledger.version;
    board.post(noteKey, writeRentNote(ledger.parts()));
  };
  const hear = ({ key, bytes, ageMs, origin }: Note): void => {
    if (key !== noteKey) return;
    try {
      ledger.tell(origin.router, readRentNote(bytes), ageMs);
      outcomes.taken.add();
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      outcomes.invalid.add();
    }
  };
  return {
    paidMs: (key) => ledger.paidMs(key),
    add(key: number, rentMs: number, target: TargetIndex) {
      ledger.add(key, rentMs, target);
      if (!board || !isStarted) return;
      if (rentMs < 0) tell();
      else cancelTell ??= scheduler.after(tellRentsMs, tell);
    },
    async start() {
      isStarted = true;
      if (board) cancels = [board.onNote(hear)];
    },
    async stop() {
      isStarted = false;
      cancelTell?.();
      cancelTell = undefined;
      for (const cancel of cancels) cancel();
    },
  };
}

/** Reads what was paid, and pays nothing. */
export function quietRents(rents: CopyRents): CopyRents {
  return { paidMs: (key) => rents.paidMs(key), add() {} };
}
