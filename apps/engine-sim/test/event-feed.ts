import { silentLogger, systemClock, systemScheduler } from "@espalier/core";
import {
  createEventDecoder,
  type EventDecoder,
  type EventDialect,
  readReplayAnswer,
} from "@espalier/engine-model/kv-events";
import {
  createKvFeed,
  createReplayGate,
  createWorkSlices,
  createZmqTransport,
  type EventTransport,
  type FeedSink,
  type KvFeed,
} from "@espalier/shared-tree/events";
import { waitFor } from "@espalier/testing";
import { expect, onTestFinished } from "vitest";
import type { Json, TestSim } from "./sim-client.ts";

type Batch = EventDecoder["batch"];

/** What `/sim/kv-events` says. */
export interface ChannelState extends Json {
  readonly dialect: string;
  readonly port: number;
  readonly replayPort: number | null;
  readonly nextSequence: number;
  readonly subscriptions: number;
  readonly replays: number;
  readonly faults: readonly Json[];
}

/** The cache that an engine of each dialect has. */
export const flavourOf = (dialect: EventDialect): "vllm" | "sglang" =>
  dialect.startsWith("sglang") ? "sglang" : "vllm";

export const channelOf = async (sim: TestSim): Promise<ChannelState> =>
  (await sim.get("/sim/kv-events")).json as ChannelState;

/** Makes something go wrong with an engine's events. */
export async function breakEvents(sim: TestSim, fault: Json): Promise<ChannelState> {
  const answer = await sim.post("/sim/kv-events", fault);
  expect(answer.status, answer.text).toBe(200);
  return answer.json as ChannelState;
}

/** A stored or removed event in plain values. */
export interface PlainEvent {
  readonly kind: "stored" | "removed" | "cleared";
  readonly tier: (typeof tiers)[number];
  readonly hashes: readonly bigint[];
  readonly parent: bigint | undefined;
  readonly tokens: readonly number[];
  readonly blockSize: number;
  readonly adapter: string | undefined;
  readonly cacheSalt: string | undefined;
  /** What each block contains of images and the like. */
  readonly blockKeys: readonly (string | undefined)[] | undefined;
}

const kinds = ["stored", "removed", "cleared"] as const;
const tiers = ["gpu", "cpu", "disk", "external"] as const;

/** Copies the events out of a decoded batch. */
export function plainEvents(batch: Batch): PlainEvent[] {
  const hash = (words: Uint32Array, at: number): bigint =>
    (BigInt(words[2 * at + 1] as number) << 32n) | BigInt(words[2 * at] as number);
  return Array.from({ length: batch.count }, (_, event) => {
    const hashes: bigint[] = [];
    const end = batch.hashStart[event + 1] as number;
    for (let at = batch.hashStart[event] as number; at < end; at++) hashes.push(hash(batch.hashes, at));
    return {
      kind: kinds[batch.kind[event] as number] ?? "cleared",
      tier: tiers[batch.tier[event] as number] ?? "gpu",
      hashes,
      parent: batch.hasParent[event] === 1 ? hash(batch.parent, event) : undefined,
      tokens: Array.from(batch.tokens.subarray(batch.tokenStart[event], batch.tokenStart[event + 1])),
      blockSize: batch.blockSize[event] as number,
      adapter: batch.detail[event]?.adapter,
      cacheSalt: batch.detail[event]?.cacheSalt,
      blockKeys: batch.detail[event]?.blockKeys,
    };
  });
}

/** What an engine holds as its events tell, told naively: copies of each chain of blocks, chains written out as text. */
export interface Holdings {
  apply(events: readonly PlainEvent[]): void;
  clear(): void;
  /** Copies in GPU memory. */
  readonly blocks: number;
  readonly cpuBlocks: number;
  /** Tokens of the longest prefix held, in whichever memory, among the first `limit` tokens. */
  match(tokens: readonly number[], options: { limit: number; adapter?: string; cacheSalt?: string }): number;
}

function createHoldings(blockSize: number): Holdings {
  const copies = new Map<string, number>();
  const cpu = new Set<string>();
  const chains = new Map<bigint, string>();
  const root = (adapter: string | undefined, salt: string | undefined): string => `${adapter ?? ""}|${salt ?? ""}`;
  const add = (chain: string, change: number): void => {
    const count = (copies.get(chain) ?? 0) + change;
    if (count < 0) throw new Error(`removed what is not held: ${chain}`);
    if (count === 0) copies.delete(chain);
    else copies.set(chain, count);
  };
  const clear = (): void => {
    copies.clear();
    cpu.clear();
  };
  /** What goes to CPU memory was told of before, or is described. */
  const moved = (kind: "stored" | "removed", hashes: readonly bigint[]): void => {
    for (const hash of hashes) {
      const chain = chains.get(hash) ?? `unknown ${hash}`;
      if (kind === "stored" ? !chains.has(hash) : !cpu.has(chain)) throw new Error(`moved what is not held: ${chain}`);
      if (kind === "stored") cpu.add(chain);
      else cpu.delete(chain);
    }
  };
  return {
    apply(events) {
      for (const { kind, tier, hashes, parent, tokens, adapter, cacheSalt } of events) {
        if (kind === "cleared") clear();
        else if (tier !== "gpu" && tokens.length === 0) moved(kind, hashes);
        else if (kind === "removed") for (const hash of hashes) add(chains.get(hash) ?? `unknown ${hash}`, -1);
        if (kind !== "stored" || tokens.length === 0) continue;
        let chain = parent === undefined ? root(adapter, cacheSalt) : chains.get(parent);
        if (chain === undefined) throw new Error(`unknown parent ${parent}`);
        for (const [at, hash] of hashes.entries()) {
          chain += `/${tokens.slice(at * blockSize, (at + 1) * blockSize).join(",")}`;
          chains.set(hash, chain);
          if (tier === "gpu") add(chain, 1);
          else cpu.add(chain);
        }
      }
    },
    clear,
    get cpuBlocks() {
      return cpu.size;
    },
    get blocks() {
      return [...copies.values()].reduce((sum, count) => sum + count, 0);
    },
    match(tokens, { limit, adapter, cacheSalt }) {
      let chain = root(adapter, cacheSalt);
      let found = 0;
      while (found + blockSize <= limit) {
        chain += `/${tokens.slice(found, found + blockSize).join(",")}`;
        if (!copies.has(chain) && !cpu.has(chain)) break;
        found += blockSize;
      }
      return found;
    },
  };
}

/** A feed of the router over real sockets, and what it told. */
export interface FollowedEvents {
  readonly feed: KvFeed;
  readonly holdings: Holdings;
  /** Messages of the present epoch. */
  readonly messages: readonly { readonly sequence: number; readonly events: readonly PlainEvent[] }[];
  readonly epochs: number;
  /** Events of the present epoch. */
  events(): PlainEvent[];
  /** Waits until the last message that was published is applied. */
  caughtUp(): Promise<void>;
  /** Waits for `STATE REASON`, or for any reason of a `STATE`. */
  is(state: string): Promise<void>;
}

const slices = createWorkSlices({ clock: systemClock, scheduler: systemScheduler });

/** Follows an engine's events until the test ends. Messages are awaited once the engine knows of the subscription. */
export async function followEvents(sim: TestSim, blockSize = 16): Promise<FollowedEvents> {
  const { port, replayPort, subscriptions } = await channelOf(sim);
  const holdings = createHoldings(blockSize);
  let messages: { sequence: number; events: PlainEvent[] }[] = [];
  let epochs = 1;
  const sink: FeedSink = {
    batch(batch, sequence) {
      const events = plainEvents(batch);
      messages.push({ sequence, events });
      holdings.apply(events);
    },
    newEpoch() {
      epochs += 1;
      messages = [];
      holdings.clear();
    },
    state() {},
  };
  const feed = createKvFeed({
    key: "test/0",
    endpoints: {
      endpoint: `tcp://127.0.0.1:${port}`,
      mode: "connect",
      topic: "",
      replayEndpoint: replayPort === null ? undefined : `tcp://127.0.0.1:${replayPort}`,
    },
    sink,
    decoder: createEventDecoder(),
    transport: createZmqTransport(slices),
    slices,
    replayGate: createReplayGate(),
    clock: systemClock,
    scheduler: systemScheduler,
    logger: silentLogger,
    limits: { replayIdleMs: 300, replayCooldownMs: 500 },
  });
  await feed.start();
  onTestFinished(() => feed.stop());
  await subscribed(sim, subscriptions + 1);
  const now = (): string => `${feed.state} ${feed.reason}`;
  return {
    feed,
    holdings,
    get messages() {
      return messages;
    },
    get epochs() {
      return epochs;
    },
    events: () => messages.flatMap(({ events }) => events),
    async caughtUp() {
      const { nextSequence } = await channelOf(sim);
      const arrived = (): boolean => (messages.at(-1)?.sequence ?? -1) >= nextSequence - 1;
      await waitFor(arrived, { what: `message ${nextSequence - 1} (${now()})`, deadlineMs: 10_000 });
    },
    async is(state) {
      await waitFor(() => now() === state || feed.state === state, { what: state, deadlineMs: 10_000 }).catch(
        (error: Error) => {
          throw new Error(`${error.message}: it is ${now()}`);
        },
      );
    },
  };
}

/** Waits until the engine has so many subscriptions. */
const subscribed = (sim: TestSim, count: number): Promise<unknown> =>
  waitFor(async () => (await channelOf(sim)).subscriptions === count, { what: `${count} subscriptions` });

/** One message as it came. */
export interface RawMessage {
  readonly topic: string;
  readonly sequence: number;
  readonly payload: Uint8Array;
}

/** A socket that keeps every message as it comes, in the order of receipt. */
export interface RawEvents {
  readonly messages: readonly RawMessage[];
  readonly sequences: readonly number[];
  /** Waits for so many messages in all. */
  received(count: number): Promise<readonly RawMessage[]>;
}

const transport: EventTransport = createZmqTransport(slices);

export async function listenToEvents(sim: TestSim, topic = ""): Promise<RawEvents> {
  const { port, subscriptions } = await channelOf(sim);
  const messages: RawMessage[] = [];
  const socket = transport.openSubscriber({
    endpoint: `tcp://127.0.0.1:${port}`,
    mode: "connect",
    topic,
    observer: {
      onMessage: ([first, sequence, payload]) =>
        messages.push({
          topic: Buffer.from(first ?? []).toString(),
          sequence: Number(Buffer.from(sequence ?? []).readBigUInt64BE()),
          payload: payload ?? new Uint8Array(),
        }),
      onBacklog() {},
      onUp() {},
      onDown() {},
      onFailed(error) {
        throw error;
      },
    },
  });
  onTestFinished(() => socket.close());
  await subscribed(sim, subscriptions + 1);
  return {
    messages,
    get sequences() {
      return messages.map(({ sequence }) => sequence);
    },
    async received(count) {
      await waitFor(() => messages.length >= count, { what: `${count} messages` });
      return messages;
    },
  };
}

/** Asks for a replay from `start` and waits for its end. */
export async function askReplay(sim: TestSim, start = 0): Promise<{ sequences: number[]; frameCounts: number[] }> {
  const { replayPort } = await channelOf(sim);
  const sequences: number[] = [];
  const frameCounts: number[] = [];
  let ended = false;
  const socket = transport.openReplay({
    endpoint: `tcp://127.0.0.1:${replayPort}`,
    start,
    onFrames(frames) {
      const answer = readReplayAnswer(frames);
      frameCounts.push(frames.length);
      if (answer.kind === "data") sequences.push(answer.sequence);
      ended ||= answer.kind !== "data";
    },
  });
  try {
    await waitFor(() => ended, { what: "end of the replay" });
    return { sequences, frameCounts };
  } finally {
    socket.close();
  }
}
