import type { Cancel, Clock, Scheduler } from "@espalier/core";
import { type Decision, type DecisionEnd, readDecisions, readEnds, skippedOf } from "../model/decisions.ts";
import { addHistory, emptyHistory } from "../model/history.ts";
import { type Overview, onPageClock, readOverview } from "../model/overview.ts";
import { asObject, asText, asTextOrNull } from "../model/read-json.ts";

/** Time, network and shared documents, as the page has them. */
export interface FollowerPorts {
  readonly time: Clock & Scheduler;
  readonly fetch: (url: string, options: RequestInit) => Promise<Response>;
  readonly followDocument: FollowDocument;
}

/** Follows the map `overview` of a document at a router. */
export type FollowDocument = (
  at: { readonly origin: string; readonly name: string; readonly key: string | undefined },
  listener: DocumentListener,
) => { close(): void };

export interface DocumentListener {
  /** The whole map of the document, whenever it has changed. */
  sections(sections: unknown): void;
  closed(): void;
}

interface FollowerOptions {
  readonly origin: string;
  /** The admin key; undefined while none is known. */
  readonly key: () => string | undefined;
  readonly ports: FollowerPorts;
  /** Whether to try again: other routers may report that it is gone. */
  readonly mayRetry: () => boolean;
  readonly onChange: () => void;
  readonly onDecisions: (decisions: readonly Decision[], skipped: number) => void;
  /** Requests have ended; their decisions came before. */
  readonly onEnds: (router: string, ends: readonly DecisionEnd[]) => void;
  /** The router rejected the key, or wants one. */
  readonly onUnauthorized: () => void;
  readonly onLost: () => void;
}

/** A router whose stream is silent for so long counts as gone, even if its socket is open. It sends something every 2 s. */
export const silenceTimeoutMs = 6_000;
const watchMs = 1_000;
/** How often it is asked what its history has since. */
const historyMs = 2_000;

/** One router that the page follows: its overview and its decisions. */
export class Follower {
  readonly origin: string;
  isLive = false;
  /** Its id, once it has answered. */
  router: string | undefined;
  #overview: Overview | undefined;
  /** Whether it has ever sent its overview. */
  hasBeenLive = false;
  /** Its last fifteen minutes, kept when it is gone. */
  history = emptyHistory;
  killCommand: string | null = null;
  /** Where its operators have a Grafana; null for none. */
  grafana: string | null = null;
  readonly #options: FollowerOptions;
  #failures = 0;
  #lastDataMs = 0;
  #isStopped = false;
  #cancels: Cancel[] = [];

  /** With times on the page's clock. */
  get overview(): Overview | undefined {
    return this.#overview && onPageClock(this.#overview, this.history.aheadMs);
  }

  constructor(options: FollowerOptions) {
    this.#options = options;
    this.origin = options.origin;
    void this.#connect();
  }

  async #connect(): Promise<void> {
    const { time, followDocument } = this.#options.ports;
    const key = this.#options.key();
    const controller = new AbortController();
    this.#lastDataMs = time.nowMs();
    this.#cancels = [() => controller.abort(), time.every(watchMs, () => this.#watch(controller.signal))];
    try {
      const answer = await this.#ask("/admin/dashboard", controller.signal);
      if (answer.status === 401) {
        this.#close();
        this.#options.onUnauthorized();
        return;
      }
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const { router, document, killCommand, grafana } = asObject(await answer.json());
      if (controller.signal.aborted) return;
      this.router = asText(router);
      this.killCommand = asTextOrNull(killCommand);
      this.grafana = asTextOrNull(grafana);
      const followed = followDocument(
        { origin: this.origin, name: asText(document), key },
        { sections: (sections) => this.#take(sections), closed: () => this.#fail(controller.signal) },
      );
      this.#cancels.push(() => followed.close());
      this.#cancels.push(time.every(historyMs, () => void this.#askHistory(controller.signal)));
      void this.#askHistory(controller.signal);
      await this.#readDecisions(controller.signal);
    } catch {
      // Every failure is retried.
    }
    this.#fail(controller.signal);
  }

  stop(): void {
    this.#isStopped = true;
    this.isLive = false;
    this.#close();
  }

  #ask(path: string, signal: AbortSignal): Promise<Response> {
    const key = this.#options.key();
    const headers: Record<string, string> = key === undefined ? {} : { authorization: `Bearer ${key}` };
    return this.#options.ports.fetch(this.origin + path, { headers, signal });
  }

  async #readDecisions(signal: AbortSignal): Promise<void> {
    const answer = await this.#ask("/admin/decisions", signal);
    const reader = answer.body?.getReader();
    if (!answer.ok || !reader) throw new Error(`status ${answer.status}`);
    const readEvents = createEventReader();
    const decoder = new TextDecoder();
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      this.#lastDataMs = this.#options.ports.time.nowMs();
      for (const { data } of readEvents(decoder.decode(piece.value, { stream: true }))) {
        const batch: unknown = JSON.parse(data);
        const router = this.router ?? "";
        this.#options.onDecisions(readDecisions(router, batch), skippedOf(batch));
        this.#options.onEnds(router, readEnds(batch));
      }
    }
  }

  async #askHistory(signal: AbortSignal): Promise<void> {
    const { time } = this.#options.ports;
    const askedMs = time.wallMs();
    try {
      const answer = await this.#ask(`/admin/history?after=${this.history.latestMs}`, signal);
      if (!answer.ok) return;
      const more: unknown = await answer.json();
      if (!signal.aborted) this.history = addHistory(this.history, more, time.wallMs(), askedMs);
    } catch {
      // The stream of decisions tells when a router is gone.
    }
  }

  #take(sections: unknown): void {
    // The document is empty until it has synced.
    if (!("traffic" in asObject(sections))) return;
    this.#overview = readOverview(sections);
    this.isLive = true;
    this.hasBeenLive = true;
    this.#failures = 0;
    this.#options.onChange();
  }

  #watch(signal: AbortSignal): void {
    if (this.#options.ports.time.nowMs() - this.#lastDataMs > silenceTimeoutMs) this.#fail(signal);
  }

  /** @param signal of the attempt that failed; a late failure of an earlier attempt is ignored */
  #fail(signal: AbortSignal): void {
    if (signal.aborted || this.#isStopped) return;
    const wasLive = this.isLive;
    this.#close();
    this.isLive = false;
    this.#failures += 1;
    this.#retryLater();
    if (wasLive) this.#options.onLost();
    this.#options.onChange();
  }

  #retryLater(): void {
    const { ports, mayRetry } = this.#options;
    const cancel = ports.time.after(retryDelayMs(this.#failures), () => {
      if (mayRetry()) void this.#connect();
      else this.#retryLater();
    });
    this.#cancels = [cancel];
  }

  #close(): void {
    for (const cancel of this.#cancels.splice(0)) cancel();
  }
}

const firstRetryMs = 1_000;
const lastRetryMs = 15_000;

/** How long to wait before a router that did not answer `failures` times in a row is tried again. */
export function retryDelayMs(failures: number): number {
  return Math.min(lastRetryMs, firstRetryMs * 2 ** Math.max(0, failures - 1));
}

/** One server-sent event. */
interface StreamEvent {
  readonly event: string;
  readonly data: string;
}

/** Characters of an event that has not ended. A longer one is an error of the stream. */
export const maxEventLength = 1_048_576;

/**
 * Splits a stream of server-sent events, whatever the pieces it arrives in. Comments are skipped.
 *
 * @returns takes a piece, returns the events that end in it; throws RangeError for an event that does not end
 */
export function createEventReader(): (piece: string) => readonly StreamEvent[] {
  let rest = "";
  return (piece) => {
    const parts = (rest + piece).replaceAll("\r\n", "\n").split("\n\n");
    rest = parts.pop() ?? "";
    if (rest.length > maxEventLength) throw new RangeError("an event does not end");
    return parts.flatMap(readEvent);
  };
}

function readEvent(text: string): readonly StreamEvent[] {
  let event = "message";
  const data: string[] = [];
  for (const line of text.split("\n")) {
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "event") event = value;
    if (name === "data") data.push(value);
  }
  return data.length > 0 ? [{ event, data: data.join("\n") }] : [];
}
