import type { Cancel, Clock, Scheduler } from "@espalier/common";
import { type Decision, readDecisions, skippedOf } from "../model/decisions.ts";
import { type Overview, readOverview } from "../model/overview.ts";
import { addSample, type TrafficSample } from "../model/rates.ts";
import { asObject, asText, asTextOrNull } from "../model/read-json.ts";
import { retryDelayMs } from "./choose-source.ts";
import { createEventReader } from "./event-stream.ts";
import type { FollowDocument } from "./follow-document.ts";

/** What following takes of its surroundings. */
export interface FollowerPorts {
  readonly time: Clock & Scheduler;
  readonly fetch: (url: string, options: RequestInit) => Promise<Response>;
  readonly followDocument: FollowDocument;
}

export interface FollowerOptions {
  readonly origin: string;
  /** The admin key; undefined while none is known. */
  readonly key: () => string | undefined;
  readonly ports: FollowerPorts;
  /** Whether it is worth trying again: others may say that the router is gone. */
  readonly mayRetry: () => boolean;
  readonly onChange: () => void;
  readonly onDecisions: (decisions: readonly Decision[], skipped: number) => void;
  /** The router wants a key, or another one. */
  readonly onLocked: () => void;
  readonly onLost: () => void;
}

/** One router that the page follows: its overview and its decisions. */
export interface Follower {
  readonly origin: string;
  readonly isLive: boolean;
  /** Its id, once it has answered. */
  readonly router: string | undefined;
  readonly overview: Overview | undefined;
  readonly samples: readonly TrafficSample[];
  readonly killCommand: string | null;
  stop(): void;
}

/** A router whose stream is silent for so long is gone, whatever its socket says; it shows a sign of life each 2 s. */
export const silentMs = 6_000;
const watchMs = 1_000;

export function createFollower(options: FollowerOptions): Follower {
  const follower = new RouterFollower(options);
  void follower.connect();
  return follower;
}

class RouterFollower implements Follower {
  readonly origin: string;
  isLive = false;
  router: string | undefined;
  overview: Overview | undefined;
  samples: readonly TrafficSample[] = [];
  killCommand: string | null = null;
  readonly #options: FollowerOptions;
  #failures = 0;
  #heardMs = 0;
  #isStopped = false;
  #cancels: Cancel[] = [];

  constructor(options: FollowerOptions) {
    this.#options = options;
    this.origin = options.origin;
  }

  async connect(): Promise<void> {
    const { time, followDocument } = this.#options.ports;
    const key = this.#options.key();
    const controller = new AbortController();
    this.#heardMs = time.nowMs();
    this.#cancels = [() => controller.abort(), time.every(watchMs, () => this.#watch(controller.signal))];
    try {
      const answer = await this.#ask("/admin/dashboard", controller.signal);
      if (answer.status === 401) {
        this.#close();
        this.#options.onLocked();
        return;
      }
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const { router, document, killCommand } = asObject(await answer.json());
      if (controller.signal.aborted) return;
      this.router = asText(router);
      this.killCommand = asTextOrNull(killCommand);
      const followed = followDocument(
        { origin: this.origin, name: asText(document), key },
        { sections: (sections) => this.#take(sections), closed: () => this.#fail(controller.signal) },
      );
      this.#cancels.push(() => followed.close());
      await this.#readDecisions(controller.signal);
    } catch {
      // However it failed, it is tried again.
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
      this.#heardMs = this.#options.ports.time.nowMs();
      for (const { data } of readEvents(decoder.decode(piece.value, { stream: true }))) {
        const told: unknown = JSON.parse(data);
        this.#options.onDecisions(readDecisions(this.router ?? "", told), skippedOf(told));
      }
    }
  }

  #take(sections: unknown): void {
    // A document that has not come yet is empty.
    if (!("traffic" in asObject(sections))) return;
    this.overview = readOverview(sections);
    this.samples = addSample(this.samples, { atMs: this.#options.ports.time.nowMs(), counts: this.overview.traffic });
    this.isLive = true;
    this.#failures = 0;
    this.#options.onChange();
  }

  #watch(signal: AbortSignal): void {
    if (this.#options.ports.time.nowMs() - this.#heardMs > silentMs) this.#fail(signal);
  }

  /** @param signal of the attempt that failed: what is left of an earlier one says nothing */
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
      if (mayRetry()) void this.connect();
      else this.#retryLater();
    });
    this.#cancels = [cancel];
  }

  #close(): void {
    for (const cancel of this.#cancels.splice(0)) cancel();
  }
}
