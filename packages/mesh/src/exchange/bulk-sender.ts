import type { Cancel, Clock, Scheduler } from "@espalier/common";
import type { Link } from "../link/link.ts";
import { type BulkOutcome, encodeBulkMessage } from "./bulk-frames.ts";
import type { ExchangeLimits } from "./exchange-limits.ts";
import type { ExchangeMeter } from "./exchange-meter.ts";

/** What an answer is made of. Snapshots go before pieces of documents. */
export interface BulkAnswer {
  readonly request: number;
  readonly kind: "snapshot" | "piece";
  /** Each message is computed when there is room for it. */
  readonly messages: Iterator<Uint8Array, unknown, undefined>;
}

interface Job extends BulkAnswer {
  /** What is left of the message that is being cut into parts. */
  rest: Uint8Array | undefined;
}

interface Outlet {
  readonly link: Link;
  readonly jobs: Job[];
  /** Ends that found no room. */
  readonly ends: { readonly request: number; readonly outcome: BulkOutcome }[];
  /** Bytes of parts that were sent and not granted again. */
  underWayBytes: number;
}

export interface BulkSenderDeps {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly limits: ExchangeLimits;
  readonly meter: ExchangeMeter;
  /** An answer could not be computed to its end. */
  failed(link: Link, error: unknown): void;
}

/**
 * Sends answers at low priority: on each link only as much as the other end has granted, and in each turn of the event
 * loop only for a few milliseconds.
 */
export class BulkSender {
  readonly #deps: BulkSenderDeps;
  readonly #outlets = new Map<Link, Outlet>();
  #turn: Cancel | undefined;
  /** Link that was served last, so that all have their turn. */
  #lastServed: Link | undefined;

  constructor(deps: BulkSenderDeps) {
    this.#deps = deps;
  }

  linkUp(link: Link): void {
    this.#outlets.set(link, { link, jobs: [], ends: [], underWayBytes: 0 });
  }

  linkDown(link: Link): void {
    const outlet = this.#outlets.get(link);
    this.#outlets.delete(link);
    for (const job of outlet?.jobs ?? []) job.messages.return?.();
  }

  stop(): void {
    for (const link of [...this.#outlets.keys()]) this.linkDown(link);
    this.#turn?.();
    this.#turn = undefined;
  }

  /** Begins an answer; when too many wait on this link, the other end is told to come again. */
  answer(link: Link, answer: BulkAnswer): void {
    const outlet = this.#outlets.get(link);
    if (outlet === undefined || outlet.jobs.length >= this.#deps.limits.maxAnswersPerLink) {
      answer.messages.return?.();
      if (outlet !== undefined) this.#end(outlet, answer.request, "busy");
      return;
    }
    const job = { ...answer, rest: undefined };
    const firstPiece = outlet.jobs.findIndex(({ kind }) => kind === "piece");
    if (answer.kind === "snapshot" && firstPiece >= 0) outlet.jobs.splice(firstPiece, 0, job);
    else outlet.jobs.push(job);
    this.#wake();
  }

  /** Answers without content. */
  refuse(link: Link, request: number, outcome: BulkOutcome): void {
    const outlet = this.#outlets.get(link);
    if (outlet !== undefined) this.#end(outlet, request, outcome);
  }

  /** The other end does not wait for this answer any more. */
  cancel(link: Link, request: number): void {
    const jobs = this.#outlets.get(link)?.jobs ?? [];
    const index = jobs.findIndex((job) => job.request === request);
    if (index >= 0) jobs.splice(index, 1)[0]!.messages.return?.();
  }

  /** The other end has taken so many bytes. */
  granted(link: Link, bytes: number): void {
    const outlet = this.#outlets.get(link);
    if (outlet === undefined) return;
    outlet.underWayBytes = Math.max(0, outlet.underWayBytes - bytes);
    this.#wake();
  }

  drained(link: Link): void {
    const outlet = this.#outlets.get(link);
    if (outlet === undefined) return;
    for (const { request, outcome } of outlet.ends.splice(0)) this.#end(outlet, request, outcome);
    this.#wake();
  }

  #wake(): void {
    this.#turn ??= this.#deps.scheduler.after(0, () => {
      this.#turn = undefined;
      this.#work();
    });
  }

  #work(): void {
    const { clock, limits } = this.#deps;
    const startMs = clock.nowMs();
    for (;;) {
      const outlet = this.#next();
      if (outlet === undefined) return;
      if (!this.#step(outlet)) return;
      if (clock.nowMs() - startMs >= limits.bulkTurnMs) break;
    }
    this.#wake();
  }

  /** The next link, in turn, that has something to send and may. */
  #next(): Outlet | undefined {
    const outlets = [...this.#outlets.values()];
    const last = outlets.findIndex(({ link }) => link === this.#lastServed);
    for (let offset = 1; offset <= outlets.length; offset++) {
      const outlet = outlets[(last + offset) % outlets.length]!;
      if (outlet.jobs.length === 0 || outlet.underWayBytes >= this.#deps.limits.bulkCreditBytes) continue;
      this.#lastServed = outlet.link;
      return outlet;
    }
    return undefined;
  }

  /** Sends one part, or ends an answer. @returns false when the link had no room, which should not happen in its credit */
  #step(outlet: Outlet): boolean {
    const job = outlet.jobs[0]!;
    const content = job.rest ?? this.#compute(outlet, job);
    if (content === undefined) return true;
    const { bulkFrameBytes, bulkCreditBytes } = this.#deps.limits;
    const length = Math.min(content.length, bulkFrameBytes, bulkCreditBytes - outlet.underWayBytes);
    const goesOn = length < content.length;
    const bytes = content.subarray(0, length);
    const frame = encodeBulkMessage({ kind: "part", request: job.request, goesOn, bytes });
    if (!outlet.link.send("bulk", frame)) {
      job.rest = content;
      this.#deps.meter.dropped(job.kind);
      return false;
    }
    job.rest = goesOn ? content.subarray(length) : undefined;
    outlet.underWayBytes += length;
    this.#deps.meter.sent(job.kind, frame.length);
    return true;
  }

  #compute(outlet: Outlet, job: Job): Uint8Array | undefined {
    try {
      const { done, value } = job.messages.next();
      if (done !== true) return value as Uint8Array;
      this.#finish(outlet, job, "whole");
    } catch (error) {
      this.#finish(outlet, job, "failed");
      this.#deps.failed(outlet.link, error);
    }
    return undefined;
  }

  #finish(outlet: Outlet, job: Job, outcome: BulkOutcome): void {
    const index = outlet.jobs.indexOf(job);
    if (index >= 0) outlet.jobs.splice(index, 1);
    this.#end(outlet, job.request, outcome);
  }

  /** Ends are few and small; one that finds no room waits for some, in a list as long as the answers may be. */
  #end(outlet: Outlet, request: number, outcome: BulkOutcome): void {
    if (outlet.link.send("bulk", encodeBulkMessage({ kind: "end", request, outcome }))) return;
    if (outlet.ends.length < this.#deps.limits.maxAnswersPerLink) outlet.ends.push({ request, outcome });
  }
}
