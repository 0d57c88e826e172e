import type { Cancel, Scheduler, Startable } from "@espalier/common";
import { type EventDialect, encodeEventMessage, type WireEvent } from "@espalier/kv-events";
import type { EventFault } from "./event-faults.ts";
import { createEventStream, type EventStreamOptions } from "./event-stream.ts";
import { createMessageFaults, type MessageFault } from "./message-faults.ts";

/** Where and how an engine's KV events are published. */
export interface EventChannelDescription {
  readonly dialect: EventDialect;
  readonly topic: string;
  readonly port: number;
  /** Null without replay. */
  readonly replayPort: number | null;
  readonly bufferSteps: number;
  /** The number that the next message will have. */
  readonly nextSequence: number;
  readonly subscriptions: number;
  /** Replays answered since the socket was opened last. */
  readonly replays: number;
  readonly replaySilent: boolean;
  readonly faults: readonly MessageFault[];
}

/** Publishes the KV events of one simulated engine, with faults on demand. */
export interface EventChannel extends Startable {
  /** Ports are known once the channel is started. */
  describe(): EventChannelDescription;
  /** Publishes the events of one step as one message. */
  publish(events: readonly WireEvent[]): void;
  /**
   * A process that starts again: numbers from 0, nothing to replay, every connection lost. Resolves when its sockets are
   * open again.
   */
  restart(): Promise<void>;
  /**
   * Makes something go wrong; resolves when it does.
   *
   * @throws ApiError 400 when too many faults are on
   */
  inject(fault: EventFault): Promise<void>;
  /** No more faults. */
  clearFaults(): Promise<void>;
}

export interface EventChannelOptions extends EventStreamOptions {
  readonly scheduler: Scheduler;
}

/** A byte that msgpack never uses. */
const junk = Uint8Array.of(0xc1);

/** Data-parallel rank: a simulated engine is the only one. */
const rank = 0;

export function createEventChannel(options: EventChannelOptions): EventChannel {
  const { dialect, topic, bufferSteps, clock, scheduler, logger } = options;
  const stream = createEventStream(options);
  const faults = createMessageFaults(scheduler);
  let replaySilent = false;
  let endSilence: Cancel | undefined;
  let work: Promise<void> = Promise.resolve();

  /** Sockets are opened and closed by one task after the other. */
  const queued = (task: () => Promise<void>): Promise<void> => {
    const done = work.then(task);
    work = done.catch(() => {});
    return done;
  };
  const setReplaySilent = (silent: boolean): Promise<void> => {
    endSilence?.();
    endSilence = undefined;
    return queued(async () => {
      if (silent === replaySilent) return;
      replaySilent = silent;
      await (silent ? stream.closeReplay() : stream.openReplay());
    });
  };
  const speakAgain = (): void => {
    setReplaySilent(false).catch((error: unknown) => logger.error("the replay socket was not opened", { error }));
  };
  const publishPayload = (payload: Uint8Array): void => stream.publish(payload, faults.take());

  return {
    start: stream.start,
    stop() {
      endSilence?.();
      faults.clear();
      return queued(stream.stop);
    },
    describe() {
      const { port, replayPort = null, nextSequence, subscriptions, replays } = stream;
      const place = { dialect, topic, port, replayPort, bufferSteps };
      return { ...place, nextSequence, subscriptions, replays, replaySilent, faults: faults.list() };
    },
    publish: (events) =>
      publishPayload(encodeEventMessage(events, dialect, { timestampS: clock.wallMs() / 1_000, rank })),
    restart() {
      stream.beginLife();
      return queued(() => stream.reopen({ replay: !replaySilent }));
    },
    async inject(fault) {
      if (fault.kind === "gap") stream.skip(fault.count);
      else if (fault.kind === "replay-truncated") stream.forgetAllBut(fault.keep);
      else if (fault.kind === "junk") {
        for (let index = 0; index < fault.count; index++) publishPayload(junk);
      } else if (fault.kind === "replay-silent") {
        await setReplaySilent(true);
        if (fault.delayMs !== undefined) endSilence = scheduler.after(fault.delayMs, speakAgain);
      } else faults.add(fault);
    },
    clearFaults() {
      faults.clear();
      return setReplaySilent(false);
    },
  };
}
