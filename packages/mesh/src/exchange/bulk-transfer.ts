import { type Cancel, type Clock, messages, oneOf, rest, struct, varint } from "@espalier/core";
import type { Link } from "../link/link.ts";
import type { ExchangeLimits, ExchangeParts } from "./exchange-parts.ts";
import { PeerFault } from "./peer-fault.ts";

/**
 * `whole`: everything was sent. `none`: the other end has nothing of it. `busy`: too much is in progress, try again
 * later. `failed`: it could not continue.
 */
export type BulkOutcome = "whole" | "none" | "busy" | "failed";

/** Messages of the channel `bulk`: answers to requests, which may be cut into parts. */
export type BulkMessage =
  | {
      readonly kind: "part";
      readonly request: number;
      /** The message continues in the next part of the same request. */
      readonly goesOn: boolean;
      readonly bytes: Uint8Array;
    }
  | { readonly kind: "end"; readonly request: number; readonly outcome: BulkOutcome }
  /** So many more bytes of parts may be sent. */
  | { readonly kind: "credit"; readonly bytes: number };

const frames = messages({
  part: [1, struct({ request: varint(), goesOn: oneOf(false, true), bytes: rest() })],
  end: [2, struct({ request: varint(), outcome: oneOf<BulkOutcome>("whole", "none", "busy", "failed") })],
  credit: [3, struct({ bytes: varint() })],
});

export const bulkFrameLayouts = frames.layouts;

export function encodeBulkMessage(message: BulkMessage): Uint8Array {
  return frames.encode(message, message.kind === "part" ? message.bytes.length + 16 : 16);
}

/** @throws RangeError for bytes that are no such frame */
export const decodeBulkMessage: (frame: Uint8Array) => BulkMessage = frames.decode;

/** The content of an answer. Snapshots go before pieces of documents. */
export interface BulkAnswer {
  readonly request: number;
  readonly kind: "snapshot" | "piece";
  /** Each message is computed when there is capacity for it. */
  readonly messages: Iterator<Uint8Array, unknown, undefined>;
}

interface Job extends BulkAnswer {
  /** The rest of the message that is being cut into parts. */
  rest: Uint8Array | undefined;
}

interface Outlet {
  readonly link: Link;
  readonly jobs: Job[];
  /** Ends that did not fit. */
  readonly ends: { readonly request: number; readonly outcome: BulkOutcome }[];
  /** Bytes of parts that were sent and not granted again. */
  underWayBytes: number;
}

export interface BulkSenderDeps extends Pick<ExchangeParts, "clock" | "scheduler" | "limits" | "meter"> {
  /** An answer could not be computed to its end. */
  failed(link: Link, error: unknown): void;
}

/**
 * Sends answers at low priority: on each link no more than the other end has granted, and in each turn of the event
 * loop only for a few milliseconds.
 */
export class BulkSender {
  readonly #deps: BulkSenderDeps;
  readonly #outlets = new Map<Link, Outlet>();
  #turn: Cancel | undefined;
  /** The link that was served last; the others have their turn first. */
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

  /** Begins an answer. When too many wait on this link, the other end gets `busy`. */
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

  /** The other end has received this many bytes. */
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

  /**
   * Sends one part, or ends an answer. @returns false when the link had no capacity, which its credit should prevent
   */
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

  /** Ends are few and small. One that does not fit waits, in a list bounded like the answers. */
  #end(outlet: Outlet, request: number, outcome: BulkOutcome): void {
    if (outlet.link.send("bulk", encodeBulkMessage({ kind: "end", request, outcome }))) return;
    if (outlet.ends.length < this.#deps.limits.maxAnswersPerLink) outlet.ends.push({ request, outcome });
  }
}

/** Takes the answer to one request. */
export interface AnswerTaker {
  /** @throws RangeError for a message that cannot be read */
  message(bytes: Uint8Array): void;
  /** `lost`: the link ended. `silent`: nothing came for too long. Nothing comes after it. */
  end(outcome: BulkOutcome | "lost" | "silent"): void;
}

interface Expected {
  readonly taker: AnswerTaker;
  /** Parts of a message that is not complete yet. */
  parts: Uint8Array[];
  partBytes: number;
  heardMs: number;
}

interface Inlet {
  readonly link: Link;
  readonly expected: Map<number, Expected>;
  nextRequest: number;
  /** Bytes received and not yet granted again. */
  owedBytes: number;
}

export interface BulkReceiverDeps {
  readonly clock: Clock;
  readonly limits: ExchangeLimits;
}

/** Receives bulk from others, passes it to who asked for it, and grants them more credit. */
export class BulkReceiver {
  readonly #deps: BulkReceiverDeps;
  readonly #inlets = new Map<Link, Inlet>();

  constructor(deps: BulkReceiverDeps) {
    this.#deps = deps;
  }

  linkUp(link: Link): void {
    this.#inlets.set(link, { link, expected: new Map(), nextRequest: 1, owedBytes: 0 });
  }

  linkDown(link: Link): void {
    const inlet = this.#inlets.get(link);
    this.#inlets.delete(link);
    for (const { taker } of inlet?.expected.values() ?? []) taker.end("lost");
  }

  /** @returns the request's number, which its answer carries; undefined when the link is gone */
  expect(link: Link, taker: AnswerTaker): number | undefined {
    const inlet = this.#inlets.get(link);
    if (inlet === undefined) return undefined;
    const request = inlet.nextRequest++;
    inlet.expected.set(request, { taker, parts: [], partBytes: 0, heardMs: this.#deps.clock.nowMs() });
    return request;
  }

  /** Discards what arrives for this request; its taker is not called any more. */
  abandon(link: Link, request: number): void {
    this.#inlets.get(link)?.expected.delete(request);
  }

  /**
   * Takes a part or an end.
   *
   * @throws PeerFault for a message that is too long or cannot be read
   */
  receive(link: Link, message: Exclude<BulkMessage, { kind: "credit" }>): void {
    const inlet = this.#inlets.get(link);
    if (inlet === undefined) return;
    if (message.kind === "part") this.#grant(inlet, message.bytes.length);
    const expected = inlet.expected.get(message.request);
    if (expected === undefined) return;
    expected.heardMs = this.#deps.clock.nowMs();
    if (message.kind === "end") {
      inlet.expected.delete(message.request);
      if (expected.partBytes > 0) throw new PeerFault("an answer ended within a message");
      expected.taker.end(message.outcome);
      return;
    }
    const whole = this.#join(expected, message.bytes, message.goesOn);
    if (whole !== undefined) expected.taker.message(whole);
  }

  /** Gives up requests without an answer. @returns what was abandoned, so that the other end can be informed */
  sweep(): { readonly link: Link; readonly request: number }[] {
    const { clock, limits } = this.#deps;
    const silentBeforeMs = clock.nowMs() - limits.answerTimeoutMs;
    const silent: { link: Link; request: number; taker: AnswerTaker }[] = [];
    for (const { link, expected } of this.#inlets.values()) {
      for (const [request, { heardMs, taker }] of expected) {
        if (heardMs <= silentBeforeMs) silent.push({ link, request, taker });
      }
    }
    for (const { link, request, taker } of silent) {
      this.abandon(link, request);
      taker.end("silent");
    }
    return silent;
  }

  /** There is capacity again for what could not be granted. */
  drained(link: Link): void {
    const inlet = this.#inlets.get(link);
    if (inlet !== undefined) this.#grant(inlet, 0);
  }

  /** Grants in steps of a quarter of the credit, so that grants cost little and the other end never waits for one. */
  #grant(inlet: Inlet, bytes: number): void {
    inlet.owedBytes += bytes;
    if (inlet.owedBytes * 4 < this.#deps.limits.bulkCreditBytes) return;
    if (inlet.link.send("bulk", encodeBulkMessage({ kind: "credit", bytes: inlet.owedBytes }))) inlet.owedBytes = 0;
  }

  #join(expected: Expected, bytes: Uint8Array, goesOn: boolean): Uint8Array | undefined {
    if (goesOn && bytes.length === 0) throw new PeerFault("an empty part before the last");
    const length = expected.partBytes + bytes.length;
    if (length > this.#deps.limits.maxBulkMessageBytes) throw new PeerFault("a bulk message is too long");
    if (!goesOn && expected.parts.length === 0) return bytes;
    expected.parts.push(bytes);
    expected.partBytes = length;
    if (goesOn) return undefined;
    const whole = new Uint8Array(length);
    let at = 0;
    for (const part of expected.parts) {
      whole.set(part, at);
      at += part.length;
    }
    expected.parts = [];
    expected.partBytes = 0;
    return whole;
  }
}
