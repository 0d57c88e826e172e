import type { Clock } from "@espalier/common";
import type { Link } from "../link/link.ts";
import { type BulkMessage, type BulkOutcome, encodeBulkMessage } from "./bulk-frames.ts";
import type { ExchangeLimits } from "./exchange-limits.ts";

/** Takes the answer to one request. */
export interface AnswerTaker {
  /** @throws RangeError for a message that cannot be read */
  message(bytes: Uint8Array): void;
  /** `lost`: the link ended. `silent`: nothing came for too long. Nothing comes after it. */
  end(outcome: BulkOutcome | "lost" | "silent"): void;
}

interface Expected {
  readonly taker: AnswerTaker;
  /** Parts of a message that is not whole yet. */
  parts: Uint8Array[];
  partBytes: number;
  heardMs: number;
}

interface Inlet {
  readonly link: Link;
  readonly expected: Map<number, Expected>;
  nextRequest: number;
  /** Bytes that were taken and not granted again. */
  owedBytes: number;
}

export interface BulkReceiverDeps {
  readonly clock: Clock;
  readonly limits: ExchangeLimits;
}

/** Takes what others send as bulk, gives it to whoever asked, and grants them more. */
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

  /** @returns a number for the request, by which the answer comes; undefined when the link is gone */
  expect(link: Link, taker: AnswerTaker): number | undefined {
    const inlet = this.#inlets.get(link);
    if (inlet === undefined) return undefined;
    const request = inlet.nextRequest++;
    inlet.expected.set(request, { taker, parts: [], partBytes: 0, heardMs: this.#deps.clock.nowMs() });
    return request;
  }

  /** What comes for this request is thrown away; its taker hears nothing any more. */
  abandon(link: Link, request: number): void {
    this.#inlets.get(link)?.expected.delete(request);
  }

  /**
   * Takes a part or an end.
   *
   * @throws RangeError for a message that is too long or cannot be read
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
      if (expected.partBytes > 0) throw new RangeError("an answer ended within a message");
      expected.taker.end(message.outcome);
      return;
    }
    const whole = this.#join(expected, message.bytes, message.goesOn);
    if (whole !== undefined) expected.taker.message(whole);
  }

  /** Gives up what nobody answers. @returns what was given up, so that the other end can be told */
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

  /** There is room again for what could not be granted. */
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
    if (goesOn && bytes.length === 0) throw new RangeError("an empty part that goes on");
    const length = expected.partBytes + bytes.length;
    if (length > this.#deps.limits.maxBulkMessageBytes) throw new RangeError("a bulk message is too long");
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
