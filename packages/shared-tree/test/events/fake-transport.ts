import { writeSequence } from "@espalier/engine-model/kv-events";
import type {
  EventTransport,
  OpenSocket,
  ReplayOptions,
  SubscriberObserver,
  SubscriberOptions,
} from "../../src/events/event-transport.ts";

export interface FakeSocket extends OpenSocket {
  isOpen: boolean;
  isPaused: boolean;
}

export interface FakeReplay extends FakeSocket {
  readonly endpoint: string;
  readonly start: number;
  /** One answer, unless the socket is closed. */
  answer(frames: readonly Uint8Array[]): void;
}

export interface FakeSubscriber extends FakeSocket {
  readonly options: SubscriberOptions;
  /** What the socket would tell, unless it is closed. */
  readonly tell: SubscriberObserver;
}

export const allOnes = new Uint8Array(8).fill(0xff);
export const empty = new Uint8Array(0);

/** Sockets that say what a test makes them say. */
export interface FakeTransport extends EventTransport {
  readonly subscribers: FakeSubscriber[];
  readonly replays: FakeReplay[];
  /** Called with every replay request. */
  onReplay: (replay: FakeReplay) => void;
}

export function createFakeTransport(): FakeTransport {
  const subscribers: FakeSubscriber[] = [];
  const replays: FakeReplay[] = [];
  const transport: FakeTransport = {
    subscribers,
    replays,
    onReplay: () => {},
    openSubscriber(options) {
      const socket = openSocket();
      const { observer } = options;
      const tell: SubscriberObserver = {
        onMessage: (frames) => socket.isOpen && observer.onMessage(frames),
        onBacklog: (hasBacklog) => socket.isOpen && observer.onBacklog(hasBacklog),
        onUp: () => socket.isOpen && observer.onUp(),
        onDown: () => socket.isOpen && observer.onDown(),
        onFailed: (error) => socket.isOpen && observer.onFailed(error),
      };
      const subscriber = Object.assign(socket, { options, tell });
      subscribers.push(subscriber);
      return subscriber;
    },
    openReplay({ endpoint, start, onFrames }: ReplayOptions) {
      const socket = openSocket();
      const answer = (frames: readonly Uint8Array[]): void => {
        if (socket.isOpen) onFrames(frames);
      };
      const replay = Object.assign(socket, { endpoint, start, answer });
      replays.push(replay);
      transport.onReplay(replay);
      return replay;
    },
  };
  return transport;
}

function openSocket(): FakeSocket {
  const socket: FakeSocket = {
    isOpen: true,
    isPaused: false,
    pause() {
      socket.isPaused = true;
    },
    resume() {
      socket.isPaused = false;
    },
    close() {
      socket.isOpen = false;
    },
  };
  return socket;
}

/** Frames of a live message. */
export const liveFrames = (sequence: number, payload: Uint8Array, topic = "kv-events"): Uint8Array[] => [
  Buffer.from(topic),
  writeSequence(sequence),
  payload,
];

/** Frames of an answer to a replay, in the form with the topic or in the older one. */
export function replayFrames(form: "topic" | "plain", sequence: Uint8Array, payload: Uint8Array): Uint8Array[] {
  const topic = payload.length === 0 ? empty : Buffer.from("kv-events");
  return form === "topic" ? [empty, topic, sequence, payload] : [empty, sequence, payload];
}
