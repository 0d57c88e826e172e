import {
  type Cancel,
  type Clock,
  list,
  type Meter,
  type Scheduler,
  type Startable,
  signedVarint,
  struct,
  type TargetIndex,
  u32,
  versioned,
} from "@espalier/core";
import type { Note, NoteChannel } from "@espalier/shared-tree";

/**
 * Rents: what prompts with a common prefix have overpaid to go where it is cached, in milliseconds, by an unsigned
 * 32-bit key of the prefix. Rents decay about as fast as full caches evict what is not used.
 */
export interface CopyCredits {
  /** The sum over all routers for a key, never negative. */
  paidMs(key: number): number;
  /**
   * Records that a prompt was sent.
   *
   * @param creditMs what it overpaid, or minus the price if it makes a copy
   */
  add(key: number, creditMs: number, target: TargetIndex): void;
}

/** One router's part of a sum. It may be negative: a router may spend what peers have paid. */
interface CreditPart {
  readonly key: number;
  readonly paidMs: number;
}

/** Rent of this age counts by a third. */
export const creditMemoryMs = 20_000;
/** Keys for which a router keeps its part; beyond it, the key whose prompt came first is forgotten. */
export const maxCreditKeys = 4_096;
/** Keys in one note: those with the largest amounts paid or spent. */
export const maxReportedCredits = 32;
/** Routers whose parts are kept; beyond it, the one received first is forgotten. */
export const maxCreditReporters = 256;
/** Bound of one router's part, whatever it reports. */
export const maxCreditMs = 600_000;
/** Smaller amounts count as nothing. */
const minCreditMs = 1;
/** The base moves once this many memory spans have passed since it. */
const maxMemories = 30;

interface OwnPart {
  /** As of the base. */
  paid: number;
  /** Target of the last prompt that paid. */
  target: TargetIndex;
}

interface ReceivedSum {
  paid: number;
  /** Number of parts in it. */
  reporters: number;
}

/**
 * The sums over all routers: each publishes its parts and adds those of its peers. All parts are converted to one time,
 * the base, so that they can be added up; all decay at the same rate.
 */
export class CreditLedger implements CopyCredits {
  readonly #nowMs: () => number;
  readonly #own = new Map<number, OwnPart>();
  readonly #received = new Map<string, readonly CreditPart[]>();
  /** Sums of `#received`, as of the base. */
  readonly #others = new Map<number, ReceivedSum>();
  #baseMs: number;
  /** Increases with every change that peers should know. */
  version = 0;

  /** @param nowMs the monotonic clock */
  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
    this.#baseMs = nowMs();
  }

  paidMs(key: number): number {
    const paid = (this.#own.get(key)?.paid ?? 0) + (this.#others.get(key)?.paid ?? 0);
    return paid > 0 ? paid / this.#growth() : 0;
  }

  add(key: number, creditMs: number, target: TargetIndex): void {
    this.#moveBase();
    this.version++;
    const growth = this.#growth();
    const own = this.#own.get(key);
    if (creditMs >= 0) {
      const paid = Math.min((own?.paid ?? 0) + creditMs * growth, maxCreditMs * growth);
      if (own) {
        own.paid = paid;
        own.target = target;
      } else this.#remember(key, { paid, target });
      return;
    }
    const relieved = own?.target;
    this.#spend(key, -creditMs * growth, target);
    if (relieved === undefined) return;
    // A copy takes load off an engine, so all prompts that go there pay less.
    for (const [other, { target: where }] of this.#own) {
      if (other !== key && where === relieved) this.#spend(other, -creditMs * growth, where);
    }
  }

  /** The largest of this router's parts, unordered. One pass, because it runs many times a second. */
  parts(): readonly CreditPart[] {
    const growth = this.#growth();
    const largest: CreditPart[] = [];
    let least = minCreditMs;
    let leastAt = 0;
    for (const [key, { paid }] of this.#own) {
      const paidMs = paid / growth;
      if (Math.abs(paidMs) < least) continue;
      if (largest.length < maxReportedCredits) largest.push({ key, paidMs });
      else largest[leastAt] = { key, paidMs };
      if (largest.length < maxReportedCredits) continue;
      leastAt = smallestOf(largest);
      least = Math.abs(largest[leastAt]!.paidMs);
    }
    return largest;
  }

  /** Replaces the parts of a router. @param ageMs time since it wrote them */
  tell(router: string, parts: readonly CreditPart[], ageMs: number): void {
    this.#moveBase();
    this.#forget(router);
    if (this.#received.size >= maxCreditReporters)
      for (const first of this.#received.keys()) if (this.#forget(first)) break;
    const growth = this.#growth() * Math.exp(-Math.max(0, ageMs) / creditMemoryMs);
    const bounded = parts.slice(0, maxReportedCredits).map(({ key, paidMs }) => ({
      key,
      paidMs: Math.min(maxCreditMs, Math.max(-maxCreditMs, paidMs)) * growth,
    }));
    this.#received.set(router, bounded);
    for (const { key, paidMs } of bounded) {
      const sum = this.#others.get(key) ?? { paid: 0, reporters: 0 };
      sum.paid += paidMs;
      sum.reporters += 1;
      this.#others.set(key, sum);
    }
  }

  #forget(router: string): boolean {
    for (const { key, paidMs } of this.#received.get(router) ?? []) {
      const sum = this.#others.get(key)!;
      sum.paid -= paidMs;
      sum.reporters -= 1;
      // The last part also removes what rounding has left.
      if (sum.reporters === 0) this.#others.delete(key);
    }
    return this.#received.delete(router);
  }

  /** Subtracts this much from the total of a key, but not below zero. */
  #spend(key: number, amount: number, target: TargetIndex): void {
    const own = this.#own.get(key);
    const paid = (own?.paid ?? 0) + (this.#others.get(key)?.paid ?? 0);
    const spent = Math.min(Math.max(0, paid), amount);
    if (own) own.paid -= spent;
    else if (spent > 0) this.#remember(key, { paid: -spent, target });
  }

  #remember(key: number, part: OwnPart): void {
    if (this.#own.size >= maxCreditKeys) for (const first of this.#own.keys()) if (this.#own.delete(first)) break;
    this.#own.set(key, part);
  }

  /** The weight of a present part relative to one at the base. */
  #growth(): number {
    return Math.exp((this.#nowMs() - this.#baseMs) / creditMemoryMs);
  }

  /** Moves the base before the weight of present parts grows too large to compute with. */
  #moveBase(): void {
    if (this.#nowMs() - this.#baseMs < maxMemories * creditMemoryMs) return;
    const growth = this.#growth();
    this.#baseMs = this.#nowMs();
    for (const [key, own] of this.#own) {
      own.paid /= growth;
      if (Math.abs(own.paid) < minCreditMs) this.#own.delete(key);
    }
    for (const [router, parts] of this.#received) {
      this.#received.set(
        router,
        parts.map(({ key, paidMs }) => ({ key, paidMs: paidMs / growth })),
      );
    }
    for (const sum of this.#others.values()) sum.paid /= growth;
  }
}

function smallestOf(parts: readonly CreditPart[]): number {
  let smallest = 0;
  for (let at = 1; at < parts.length; at++) {
    if (Math.abs(parts[at]!.paidMs) < Math.abs(parts[smallest]!.paidMs)) smallest = at;
  }
  return smallest;
}

interface SharedCreditsOptions {
  /** Channel between routers; undefined if there is none. */
  readonly channel: NoteChannel | undefined;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly meter: Meter;
}

/** The credits of all routers. */
export interface SharedCredits extends CopyCredits, Startable {}

/** Interval at which credits are published together. A copy is published at once, or peers would repeat it. */
export const publishCreditsMs = 25;
/** Key of the note. */
const noteKey = "credits";

/** Publishes and receives nothing before `start`, and nothing without a note channel. */
export function createSharedCredits({ channel, clock, scheduler, meter }: SharedCreditsOptions): SharedCredits {
  const ledger = new CreditLedger(() => clock.nowMs());
  const received = meter.counter(
    "espalier_copy_credits_received_total",
    "Copy credit reports of other routers, by outcome.",
    ["outcome"],
  );
  const outcomes = { taken: received.series("taken"), invalid: received.series("invalid") };
  let cancelPublish: Cancel | undefined;
  let cancels: readonly Cancel[] = [];
  let isStarted = false;
  let publishedVersion = 0;
  const publish = (): void => {
    cancelPublish?.();
    cancelPublish = undefined;
    if (!channel || ledger.version === publishedVersion) return;
    publishedVersion = ledger.version;
    channel.post(noteKey, writeCreditNote(ledger.parts()));
  };
  const receive = ({ key, bytes, ageMs, origin }: Note): void => {
    if (key !== noteKey) return;
    try {
      ledger.tell(origin.router, readCreditNote(bytes), ageMs);
      outcomes.taken.add();
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      outcomes.invalid.add();
    }
  };
  return {
    paidMs: (key) => ledger.paidMs(key),
    add(key: number, creditMs: number, target: TargetIndex) {
      ledger.add(key, creditMs, target);
      if (!channel || !isStarted) return;
      if (creditMs < 0) publish();
      else cancelPublish ??= scheduler.after(publishCreditsMs, publish);
    },
    async start() {
      isStarted = true;
      if (channel) cancels = [channel.onNote(receive)];
    },
    async stop() {
      isStarted = false;
      cancelPublish?.();
      cancelPublish = undefined;
      for (const cancel of cancels) cancel();
    },
  };
}

/** Reads credits, and adds none. */
export function dryRunCredits(credits: CopyCredits): CopyCredits {
  return { paidMs: (key) => credits.paidMs(key), add() {} };
}

/** Parts by key, which is four bytes; whole milliseconds. */
const creditNote = versioned(1, list(struct({ key: u32, paidMs: signedVarint(maxCreditMs) }), maxReportedCredits));

export const creditNoteLayout = creditNote.layout;

export function writeCreditNote(parts: readonly CreditPart[]): Uint8Array {
  return creditNote.encode(parts.map(({ key, paidMs }) => ({ key, paidMs: Math.round(paidMs) })));
}

/** @throws RangeError for bytes that are not such a note */
export const readCreditNote: (bytes: Uint8Array) => readonly CreditPart[] = creditNote.decode;
