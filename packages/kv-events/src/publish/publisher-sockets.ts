import { systemScheduler } from "@espalier/common";
import { replayCarriesTopic } from "../codec/event-dialect.ts";
import type { BatchBuffer } from "./batch-buffer.ts";
import { type EventSocket, openEventSocket } from "./event-socket.ts";
import { defaultHighWaterMark, type KvEventPublisherOptions } from "./publisher-options.ts";
import { type ReplayResponder, startReplayResponder } from "./replay-responder.ts";

/** A closed socket holds its port until a thread of the library lets go of it, usually within a millisecond. */
const reopenDelayMs = 5;
const maxReopenAttempts = 400;

/** The sockets of a publisher. Whatever is closed sends nothing and counts nothing. */
export interface PublisherSockets {
  /** With the port that was taken, once open. */
  readonly endpoint: string;
  readonly replayEndpoint: string | undefined;
  readonly subscriptions: number;
  readonly dropped: number;
  readonly replays: number;
  /**
   * Opens on the ports that it has had, if it has.
   *
   * @throws Error when a port is taken; one that it has had itself, when it is not free again within two seconds
   */
  open(): Promise<void>;
  close(): Promise<void>;
  /** Closes and opens again. @throws Error as `open` */
  reopen(): Promise<void>;
  send(frames: readonly Uint8Array[]): void;
}

export function createPublisherSockets(
  options: KvEventPublisherOptions,
  { topic, buffer }: { readonly topic: Uint8Array; readonly buffer: BatchBuffer },
): PublisherSockets {
  const { dialect, highWaterMark = defaultHighWaterMark, logger, scheduler = systemScheduler } = options;
  const host = options.host ?? "127.0.0.1";
  let endpoint = options.connect ?? tcpEndpoint(host, options.port ?? 0);
  let replayEndpoint = options.replayPort === undefined ? undefined : tcpEndpoint(host, options.replayPort);
  let events: EventSocket | undefined;
  let responder: ReplayResponder | undefined;

  const bind = async (): Promise<void> => {
    const mode = options.connect === undefined ? "bind" : "connect";
    events = await openEventSocket({ endpoint, mode, highWaterMark, logger });
    endpoint = events.endpoint;
    if (replayEndpoint === undefined) return;
    const carried = replayCarriesTopic(dialect) ? topic : undefined;
    responder = await startReplayResponder({ endpoint: replayEndpoint, topic: carried, buffer, highWaterMark, logger });
    replayEndpoint = responder.endpoint;
  };
  const close = async (): Promise<void> => {
    await Promise.all([events?.close(), responder?.close()]);
    events = undefined;
    responder = undefined;
  };
  /** Whether the ports are ones that it has had: then it may hold them itself for a moment. */
  let isAgain = false;
  const open = async (): Promise<void> => {
    for (let attempt = 1; ; attempt++) {
      try {
        await bind();
        isAgain = true;
        return;
      } catch (error) {
        await close();
        if (!isAgain || attempt === maxReopenAttempts) throw error;
      }
      await new Promise<void>((resolve) => {
        scheduler.after(reopenDelayMs, resolve);
      });
    }
  };
  const reopen = async (): Promise<void> => {
    await close();
    await open();
  };
  return {
    get endpoint() {
      return endpoint;
    },
    get replayEndpoint() {
      return replayEndpoint;
    },
    get subscriptions() {
      return events?.subscriptions ?? 0;
    },
    get dropped() {
      return events?.dropped ?? 0;
    },
    get replays() {
      return responder?.answered ?? 0;
    },
    open,
    close,
    reopen,
    send: (frames) => events?.send(frames),
  };
}

const tcpEndpoint = (host: string, port: number): string => `tcp://${host}:${port}`;
