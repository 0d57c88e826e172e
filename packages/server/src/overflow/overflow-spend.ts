import {
  amount,
  type Cancel,
  type Clock,
  counterBy,
  list,
  type Meter,
  type Scheduler,
  type Startable,
  struct,
  text,
  varint,
  versioned,
} from "@espalier/core";
import type { Note, NoteChannel } from "@espalier/shared-tree";

/** An amount of money in the present hour, and in the present day. */
export interface Spent {
  readonly hour: number;
  readonly day: number;
}

/** An amount that a request may cost, counted as spent until the cost is known. */
export interface Reservation {
  /** Replaces the amount by the cost. */
  settle(cost: number): void;
}

/** What a router spent at one backend, by the numbers of the hour and the day since the Unix epoch. */
interface Part {
  readonly backend: string;
  readonly hourNumber: number;
  readonly hour: number;
  readonly dayNumber: number;
  readonly day: number;
}

interface OverflowSpendOptions {
  /** The channel for notes; undefined where nothing is shared. */
  readonly channel: NoteChannel | undefined;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly meter: Meter;
}

const hourMs = 3_600_000;
const dayMs = 86_400_000;
/** How often other routers are told, while the amounts change. */
export const publishSpendMs = 250;
/** Runs of other routers whose amounts are kept; beyond it, the one heard first is forgotten. */
export const maxSpenders = 256;
/** Backends in a note. */
export const maxNotedBackends = 16;
/** UTF-8 bytes of a backend's name in a note. */
const maxNameBytes = 64;
/** The largest amount that a note may claim. */
const maxAmount = 1e12;
const noteKey = "overflow";
const version = 1;

/**
 * What all routers spend at overflow backends, by hours and days of UTC. Each router tells the others what it spent, so
 * that a budget is exceeded by little: by what requests reserved at several routers within a quarter of a second. Amounts
 * of a router that ended count until the hour or the day is over, also at routers that start later and hear of them.
 */
export class OverflowSpend implements Startable {
  readonly #options: OverflowSpendOptions;
  readonly #own = new Map<string, Part>();
  /** By router and its epoch: a restarted router counts from zero, and what it spent before still counts. */
  readonly #others = new Map<string, readonly Part[]>();
  readonly #received: (outcome: "taken" | "invalid") => void;
  #isChanged = false;
  #cancels: readonly Cancel[] = [];

  constructor(options: OverflowSpendOptions) {
    this.#options = options;
    this.#received = counterBy(
      options.meter,
      "outcome",
      "espalier_overflow_spend_received_total",
      "Spend reports of other routers for overflow backends, by outcome.",
    );
  }

  async start(): Promise<void> {
    const { channel, scheduler } = this.#options;
    if (!channel) return;
    this.#cancels = [
      channel.onNote((note) => this.#receive(note)),
      scheduler.every(publishSpendMs, () => {
        if (!this.#isChanged) return;
        this.#isChanged = !channel.post(noteKey, writeSpendNote([...this.#own.values()]), { isLasting: true });
      }),
    ];
  }

  async stop(): Promise<void> {
    for (const cancel of this.#cancels) cancel();
  }

  /** What all routers spent, as far as this one knows. */
  of(backend: string): Spent {
    const now = this.#ownPart(backend);
    let { hour, day } = now;
    for (const parts of this.#others.values()) {
      for (const part of parts) {
        if (part.backend !== backend) continue;
        if (part.hourNumber === now.hourNumber) hour += part.hour;
        if (part.dayNumber === now.dayNumber) day += part.day;
      }
    }
    return { hour, day };
  }

  /** Counts an amount as spent. */
  reserve(backend: string, amount: number): Reservation {
    const { hourNumber, dayNumber } = this.#ownPart(backend);
    this.#add(backend, amount, amount);
    return {
      settle: (cost) => {
        const now = this.#ownPart(backend);
        const change = cost - amount;
        this.#add(backend, now.hourNumber === hourNumber ? change : 0, now.dayNumber === dayNumber ? change : 0);
      },
    };
  }

  #add(backend: string, hour: number, day: number): void {
    const part = this.#ownPart(backend);
    this.#own.set(backend, { ...part, hour: Math.max(0, part.hour + hour), day: Math.max(0, part.day + day) });
    this.#isChanged = true;
  }

  /** This router's part in the present hour and day. */
  #ownPart(backend: string): Part {
    const wallMs = this.#options.clock.wallMs();
    const [hourNumber, dayNumber] = [Math.floor(wallMs / hourMs), Math.floor(wallMs / dayMs)];
    const known = this.#own.get(backend);
    return {
      ...{ backend, hourNumber, dayNumber },
      hour: known?.hourNumber === hourNumber ? known.hour : 0,
      day: known?.dayNumber === dayNumber ? known.day : 0,
    };
  }

  #receive({ key, bytes, origin }: Note): void {
    if (key !== noteKey) return;
    try {
      const parts = readSpendNote(bytes);
      const spender = `${origin.router}/${origin.epoch}`;
      const [first] = this.#others.keys();
      if (!this.#others.has(spender) && this.#others.size >= maxSpenders && first !== undefined)
        this.#others.delete(first);
      this.#others.set(spender, parts);
      this.#received("taken");
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      this.#received("invalid");
    }
  }
}

const amountOfMoney = amount(maxAmount);
/** What was spent in an hour and a day, by their numbers since 1970. */
const spendNote = versioned(
  version,
  list(
    struct({
      backend: text(maxNameBytes),
      hourNumber: varint(),
      dayNumber: varint(),
      hour: amountOfMoney,
      day: amountOfMoney,
    }),
    maxNotedBackends,
  ),
);

export const spendNoteLayout = spendNote.layout;
export const writeSpendNote: (parts: readonly Part[]) => Uint8Array = spendNote.encode;

/** @throws RangeError for bytes that are not such a note */
export const readSpendNote: (bytes: Uint8Array) => readonly Part[] = spendNote.decode;
