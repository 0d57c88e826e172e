import type { Clock, Logger, Startable } from "@espalier/common";
import { createKvEventPublisher, type Delivery } from "@espalier/kv-events";
import type { ResolvedKvEvents } from "./kv-event-options.ts";
import { createMessageHistory } from "./message-history.ts";

/** Numbered messages of one engine, sent to subscribers and kept for replay. Ports are known once it is started. */
export interface EventStream extends Startable {
  readonly port: number;
  /** Undefined without replay. */
  readonly replayPort: number | undefined;
  readonly nextSequence: number;
  readonly subscriptions: number;
  /** Replays answered since the socket was opened last. */
  readonly replays: number;
  publish(payload: Uint8Array, delivery: Delivery): void;
  /** Uses up numbers without messages. */
  skip(count: number): void;
  /** What is older than the newest `count` messages cannot be replayed any more. */
  forgetAllBut(count: number): void;
  /** Numbers begin at 0 again, and nothing can be replayed. */
  beginLife(): void;
  closeReplay(): Promise<void>;
  openReplay(): Promise<void>;
  /** Breaks every connection and listens on the same ports again. */
  reopen(which: { readonly replay: boolean }): Promise<void>;
}

export interface EventStreamOptions extends ResolvedKvEvents {
  /** Name among the streams of this process. */
  readonly name: string;
  readonly replayPort: number;
  readonly clock: Clock;
  readonly logger: Logger;
}

/**
 * Live messages and replay are two publishers with the same numbers, so that the replay socket can fall silent, and forget,
 * while live messages go on.
 */
export function createEventStream(options: EventStreamOptions): EventStream {
  const { name, dialect, topic, host, port, replay, replayPort, bufferSteps, clock, logger } = options;
  const common = { host, topic, dialect, clock, logger };
  const live = createKvEventPublisher({ ...common, port, bufferSteps: 1 });
  // What it sends goes nowhere: nobody binds what it dials.
  const history = replay
    ? createKvEventPublisher({ ...common, connect: `inproc://${name}-history`, replayPort, bufferSteps })
    : undefined;
  const newest = createMessageHistory(replay ? bufferSteps : 1);
  return {
    get port() {
      return portOf(live.endpoint);
    },
    get replayPort() {
      return history?.replayEndpoint === undefined ? undefined : portOf(history.replayEndpoint);
    },
    get nextSequence() {
      return live.nextSequence;
    },
    get subscriptions() {
      return live.subscriptions;
    },
    get replays() {
      return history?.replays ?? 0;
    },
    async start() {
      await live.start();
      await history?.start();
    },
    async stop() {
      await Promise.all([live.stop(), history?.stop()]);
    },
    publish(payload, delivery) {
      const sequence = live.publishPayload(payload, delivery);
      history?.publishPayload(payload, "lost");
      newest.add({ sequence, payload });
    },
    skip(count) {
      live.skipSequences(count);
      history?.skipSequences(count);
    },
    forgetAllBut(count) {
      if (!history) return;
      const kept = newest.newest(count);
      newest.clear();
      history.restart();
      for (const message of kept) {
        history.skipSequences(message.sequence - history.nextSequence);
        history.publishPayload(message.payload, "lost");
        newest.add(message);
      }
      history.skipSequences(live.nextSequence - history.nextSequence);
    },
    beginLife() {
      live.restart();
      history?.restart();
      newest.clear();
    },
    closeReplay: async () => history?.stop(),
    openReplay: async () => history?.reconnect(),
    async reopen(which) {
      await Promise.all([live.reconnect(), which.replay ? history?.reconnect() : undefined]);
    },
  };
}

const portOf = (endpoint: string): number => Number(endpoint.slice(endpoint.lastIndexOf(":") + 1));
