import { encodeEventMessage, type StoredEvent, type WireEvent } from "@espalier/engine-model/kv-events";
import type { EventTransport } from "@espalier/shared-tree/events";
import { blockSize } from "@espalier/testing";

type SubscriberOptions = Parameters<EventTransport["openSubscriber"]>[0];

/** A socket that says what a test makes it say, as long as it is open. */
export interface FakeSocket {
  readonly endpoint: string;
  readonly mode: SubscriberOptions["mode"];
  readonly topic: string;
  isOpen: boolean;
  up(): void;
  /** Messages wait in it, or no longer. */
  backlog(isThere: boolean): void;
  down(): void;
  /** Publishes one message. */
  tell(sequence: number, ...events: readonly WireEvent[]): void;
}

export interface FakeTransport extends EventTransport {
  /** Every subscriber so far. */
  readonly sockets: FakeSocket[];
  /** `ENDPOINT MODE TOPIC` of those that are open. */
  readonly open: readonly string[];
  /** `ENDPOINT from SEQUENCE` of all requests for history. */
  readonly replays: string[];
  /** Which process of the engine speaks: later ones have later times. */
  epoch: number;
  /** What is answered to a request for history from a number on; undefined never answers. */
  history: ((endpoint: string) => readonly (readonly WireEvent[])[]) | undefined;
}

const sequenceFrame = (sequence: number): Uint8Array => {
  const frame = Buffer.alloc(8);
  frame.writeBigUInt64BE(BigInt(sequence));
  return frame;
};
const end = Buffer.alloc(8, 0xff);
const empty = Buffer.alloc(0);

export function createFakeTransport(): FakeTransport {
  const sockets: FakeSocket[] = [];
  const payloadOf = (events: readonly WireEvent[], sequence: number): Uint8Array => {
    const timestampS = 1_700_000_000 + 1_000 * transport.epoch + sequence / 1_000;
    return encodeEventMessage(events, "vllm-0.32", { timestampS, rank: 0 });
  };
  const transport: FakeTransport = {
    sockets,
    epoch: 0,
    get open() {
      return sockets.filter(({ isOpen }) => isOpen).map(({ endpoint, mode, topic }) => `${endpoint} ${mode} ${topic}`);
    },
    replays: [],
    history: undefined,
    openSubscriber({ endpoint, mode, topic, observer }) {
      const socket: FakeSocket = {
        endpoint,
        mode,
        topic,
        isOpen: true,
        backlog: (isThere) => void (socket.isOpen && observer.onBacklog(isThere)),
        up: () => void (socket.isOpen && observer.onUp()),
        down: () => void (socket.isOpen && observer.onDown()),
        tell(sequence, ...events) {
          const frames = [Buffer.from(topic), sequenceFrame(sequence), payloadOf(events, sequence)];
          if (socket.isOpen) observer.onMessage(frames);
        },
      };
      sockets.push(socket);
      return {
        pause() {},
        resume() {},
        close() {
          socket.isOpen = false;
        },
      };
    },
    openReplay({ endpoint, start, onFrames }) {
      transport.replays.push(`${endpoint} from ${start}`);
      let isOpen = true;
      const answers = transport.history?.(endpoint);
      queueMicrotask(() => {
        for (const [sequence, events] of (answers ?? []).entries()) {
          const frames = [empty, Buffer.from("kv-events"), sequenceFrame(sequence), payloadOf(events, sequence)];
          if (isOpen && sequence >= start) onFrames(frames);
        }
        if (isOpen && answers) onFrames([empty, empty, end, empty]);
      });
      return {
        pause() {},
        resume() {},
        close() {
          isOpen = false;
        },
      };
    },
  };
  return transport;
}

export interface StoredRun extends Partial<Pick<StoredEvent, "medium" | "adapter" | "cacheSalt">> {
  /** The number of the first block; those of the others follow. */
  readonly first: number;
  readonly parent?: number;
  /** Tokens of an engine block. */
  readonly size?: number;
}

/** Blocks of tokens as an engine announces them, with running numbers for hashes. */
export function stored(tokens: Uint32Array, { first, parent, size = blockSize, ...rest }: StoredRun): StoredEvent {
  const hashes = Array.from({ length: tokens.length / size }, (_, at) => BigInt(first + at));
  const parentHash = parent === undefined ? undefined : BigInt(parent);
  return {
    type: "stored",
    hashes,
    parentHash,
    tokens,
    blockSize: size,
    adapter: undefined,
    cacheSalt: undefined,
    ...rest,
  };
}

export const removed = (...hashes: readonly number[]): WireEvent => ({ type: "removed", hashes: hashes.map(BigInt) });
