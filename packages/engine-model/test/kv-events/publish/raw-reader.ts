import { waitFor } from "@espalier/testing";
import { Dealer, Subscriber } from "zeromq";

/** A message as it came, the sequence number read. */
export interface RawMessage {
  readonly topic: string;
  readonly sequence: number;
  readonly payload: Uint8Array;
}

export interface RawSubscriber {
  readonly frames: readonly (readonly Uint8Array[])[];
  readonly messages: readonly RawMessage[];
  readonly sequences: readonly number[];
  readonly endpoint: string;
  close(): Promise<void>;
}

/** A plain SUB socket that keeps everything it receives. */
export async function subscribe(
  endpoint: string,
  { topic = "", mode = "connect" }: { topic?: string; mode?: "connect" | "bind" } = {},
): Promise<RawSubscriber> {
  const socket = new Subscriber({ linger: 0, reconnectInterval: 10 });
  socket.subscribe(topic);
  if (mode === "bind") await socket.bind(endpoint);
  else socket.connect(endpoint);
  const frames: Uint8Array[][] = [];
  const reading = (async () => {
    for await (const received of socket) frames.push(received);
  })().catch(() => undefined);
  const messages = (): RawMessage[] =>
    frames.map(([first, sequence, payload]) => ({
      topic: Buffer.from(first!).toString(),
      sequence: Number(Buffer.from(sequence!).readBigUInt64BE()),
      payload: payload!,
    }));
  return {
    frames,
    get messages() {
      return messages();
    },
    get sequences() {
      return messages().map(({ sequence }) => sequence);
    },
    endpoint: socket.lastEndpoint ?? endpoint,
    async close() {
      socket.close();
      await reading;
    },
  };
}

/**
 * Asks for a replay on a fresh DEALER.
 *
 * @param request the frames to send
 * @param isLast tells the answer after which no more is awaited
 */
export async function askReplay(
  endpoint: string,
  request: readonly Uint8Array[],
  isLast: (frames: readonly Uint8Array[]) => boolean = isEnd,
): Promise<readonly (readonly Uint8Array[])[]> {
  const socket = new Dealer({ linger: 0 });
  socket.connect(endpoint);
  const answers: Uint8Array[][] = [];
  const reading = (async () => {
    for await (const frames of socket) answers.push(frames);
  })().catch(() => undefined);
  try {
    await socket.send([...request]);
    await waitFor(() => answers.some(isLast), { what: "end of the replay" });
    return answers;
  } finally {
    socket.close();
    await reading;
  }
}

const isEnd = (frames: readonly Uint8Array[]): boolean => frames.at(-1)?.length === 0;

/** What asks for everything from `start` on. */
export function replayRequest(start: bigint): Uint8Array[] {
  const sequence = Buffer.alloc(8);
  sequence.writeBigUInt64BE(start);
  return [Buffer.alloc(0), sequence];
}
