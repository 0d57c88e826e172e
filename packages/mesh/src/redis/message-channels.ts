import {
  asRouterId,
  ByteReader,
  ByteWriter,
  type Cancel,
  EspalierError,
  type Logger,
  type Scheduler,
} from "@espalier/common";
import { type FoldStatement, type Origin, originKey, type ReplicaPorts } from "@espalier/replication";
import type { CountIncident, RedisKeys } from "./redis-keys.ts";
import type { RedisLimits } from "./redis-limits.ts";
import type { RedisArgument, RedisSession } from "./redis-session.ts";

const envelopeVersion = 1;
const maxRouterBytes = 512;

/** Says who sends gauges, so that a router knows its own when the channel brings them back. */
export function encodeLoadEnvelope({ router, epoch }: Origin, frame: Uint8Array): Uint8Array<ArrayBuffer> {
  const writer = new ByteWriter(frame.length + router.length + 16);
  writer.u8(envelopeVersion);
  writer.text(router);
  writer.varint(epoch);
  writer.raw(frame);
  return writer.copy();
}

/** @throws RangeError for bytes that are no envelope of this version */
export function decodeLoadEnvelope(bytes: Uint8Array, maxBytes: number): { origin: Origin; frame: Uint8Array } {
  if (bytes.length > maxBytes) throw new RangeError(`${bytes.length} bytes where ${maxBytes} are the most`);
  const reader = new ByteReader(bytes);
  if (reader.u8() !== envelopeVersion) throw new RangeError("an envelope of another version");
  const router = asRouterId(reader.text(maxRouterBytes));
  const epoch = reader.varint();
  return { origin: { router, epoch }, frame: reader.raw(reader.remaining) };
}

/** Several routers that come at once are answered with one frame of all gauges. */
const answerDelayMs = 10;

export interface MessageChannelsOptions {
  readonly origin: () => Origin;
  readonly load: ReplicaPorts["load"];
  readonly notes: ReplicaPorts["notes"];
  readonly keys: RedisKeys;
  readonly limits: RedisLimits;
  readonly scheduler: Scheduler;
  readonly logger: Logger;
  readonly count: CountIncident;
  readonly onControl: (message: ControlMessage) => void;
  /** All gauges of a router have come. */
  readonly onGauges: (from: Origin) => void;
}

/** Gauges, notes and messages among routers, which Redis passes on and does not keep. */
export class MessageChannels {
  readonly #options: MessageChannelsOptions;
  readonly #received = new Map<string, { bytes: number }>();
  readonly #cancelFrames: readonly Cancel[];
  #session: RedisSession | undefined;
  #publishing = 0;
  #sentBytes = 0;
  /** Gauges were dropped, and all must be sent once there is room. */
  #owesGauges = false;
  #cancelAnswer: Cancel | undefined;

  constructor(options: MessageChannelsOptions) {
    this.#options = options;
    this.#cancelFrames = [
      options.load.onFrame((frame) => this.#sendGauges(frame)),
      options.notes.onFrame((frame) => this.#sendNotes(frame)),
    ];
  }

  /** From now on messages go out; all gauges and notes do at once. */
  attach(session: RedisSession): void {
    this.#session = session;
    this.#sendAllGauges();
    this.#sendAllNotes();
  }

  detach(): void {
    this.#session = undefined;
  }

  publish(message: ControlMessage): void {
    const { keys, limits, count } = this.#options;
    if (!this.#session) return;
    if (this.#publishing >= limits.maxPublishing) count("message-dropped");
    else void this.#put(this.#session, keys.control, encodeControlMessage(message));
  }

  /** Publishes and waits until Redis has it. */
  async publishNow(message: ControlMessage): Promise<void> {
    if (this.#session) await this.#put(this.#session, this.#options.keys.control, encodeControlMessage(message));
  }

  /** Takes a message as it came. */
  receive(channel: string, bytes: Buffer): void {
    const { keys } = this.#options;
    if (channel === keys.load) this.#receiveGauges(bytes);
    else if (channel === keys.notes) this.#receiveNotes(bytes);
    else this.#receiveControl(bytes);
  }

  /** Sends all own gauges and notes soon, for somebody who has just come. */
  sendAllGaugesSoon(): void {
    this.#cancelAnswer ??= this.#options.scheduler.after(answerDelayMs, () => {
      this.#cancelAnswer = undefined;
      this.#sendAllGauges();
      this.#sendAllNotes();
    });
  }

  receivedBytes({ router }: Origin): number {
    return this.#received.get(router)?.bytes ?? 0;
  }

  forget(router: string): void {
    this.#received.delete(router);
  }

  get sentBytes(): number {
    return this.#sentBytes;
  }

  stop(): void {
    this.#session = undefined;
    this.#cancelAnswer?.();
    for (const cancel of this.#cancelFrames) cancel();
  }

  async #put(to: RedisSession, channel: string, message: RedisArgument): Promise<void> {
    const { logger, count, limits } = this.#options;
    this.#publishing++;
    this.#sentBytes += message.length;
    try {
      await to.run("PUBLISH", channel, message);
    } catch (error) {
      if (!to.isEnded) logger.debug("a message was not published", { channel, error: String(error) });
      count("message-dropped");
    } finally {
      this.#publishing--;
    }
    if (this.#owesGauges && this.#publishing < limits.maxPublishing / 2) this.#sendAllGauges();
  }

  #sendAllGauges(): void {
    for (const frame of this.#options.load.fullFrames()) this.#sendGauges(frame);
  }

  #sendGauges(frame: Uint8Array): void {
    const { keys, limits, count, origin } = this.#options;
    if (!this.#session) return;
    if (this.#publishing >= limits.maxPublishing) {
      this.#owesGauges = true;
      count("message-dropped");
      return;
    }
    this.#owesGauges = false;
    void this.#put(this.#session, keys.load, encodeLoadEnvelope(origin(), frame));
  }

  #sendAllNotes(): void {
    for (const frame of this.#options.notes.fullFrames()) this.#sendNotes(frame);
  }

  /** Notes that find no room are told again by themselves, some time later. */
  #sendNotes(frame: Uint8Array): void {
    const { keys, limits, count } = this.#options;
    if (!this.#session) return;
    if (this.#publishing >= limits.maxPublishing) count("message-dropped");
    else void this.#put(this.#session, keys.notes, Buffer.from(frame.buffer, frame.byteOffset, frame.byteLength));
  }

  #receiveNotes(bytes: Buffer): void {
    const { notes, count } = this.#options;
    try {
      notes.receive(bytes);
    } catch (error) {
      if (!(error instanceof EspalierError)) throw error;
      count("note-invalid");
    }
  }

  #receiveGauges(bytes: Buffer): void {
    const { limits, origin, load, onGauges, count } = this.#options;
    try {
      const { origin: from, frame } = decodeLoadEnvelope(bytes, limits.maxMessageBytes);
      if (from.router === origin().router) return;
      load.receive(frame, ({ router, epoch }) => router === from.router && epoch === from.epoch);
      this.#note(from, bytes.length);
      if (load.hasAllOf(from)) onGauges(from);
    } catch (error) {
      if (!(error instanceof RangeError || error instanceof EspalierError)) throw error;
      count("load-invalid");
    }
  }

  #receiveControl(bytes: Buffer): void {
    const { limits, origin, count, onControl } = this.#options;
    let message: ControlMessage;
    try {
      message = decodeControlMessage(bytes, limits.maxMessageBytes);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      count("message-invalid");
      return;
    }
    if (originKey(message.from) === originKey(origin())) return;
    this.#note(message.from, bytes.length);
    onControl(message);
  }

  #note({ router }: Origin, sizeBytes: number): void {
    const known = this.#received.get(router);
    if (known) known.bytes += sizeBytes;
    else if (this.#received.size < this.#options.limits.maxMembers) this.#received.set(router, { bytes: sizeBytes });
  }
}

/** What routers tell each other through Redis and need not be kept. */
export type ControlMessage = { readonly from: Origin } & (
  | { readonly kind: "hello" | "goodbye" | "streams" }
  /** The stream of this origin has a hole that its blob does not fill. */
  | { readonly kind: "republish"; readonly origin: Origin }
  | {
      readonly kind: "snapshot";
      readonly id: string;
      readonly targets: readonly string[] | null;
      readonly holder: Origin | null;
    }
  | { readonly kind: "statements"; readonly statements: readonly FoldStatement[] }
);

const controlVersion = 1;
const maxIdLength = 512;
const maxListLength = 65_536;

export function encodeControlMessage(message: ControlMessage): string {
  return JSON.stringify({ version: controlVersion, ...message });
}

/** @throws RangeError for bytes that are no message of this version */
export function decodeControlMessage(bytes: Uint8Array, maxBytes: number): ControlMessage {
  if (bytes.length > maxBytes) throw new RangeError(`${bytes.length} bytes where ${maxBytes} are the most`);
  const message = parse(bytes);
  if (message.version !== controlVersion) throw new RangeError("a message of another version");
  const from = originOf(message.from);
  switch (message.kind) {
    case "hello":
    case "goodbye":
    case "streams":
      return { kind: message.kind, from };
    case "republish":
      return { kind: "republish", from, origin: originOf(message.origin) };
    case "snapshot":
      return {
        kind: "snapshot",
        from,
        id: textOf(message.id),
        targets: message.targets === null ? null : listOf(message.targets).map(textOf),
        holder: message.holder === null ? null : originOf(message.holder),
      };
    case "statements":
      return { kind: "statements", from, statements: listOf(message.statements).map(statementOf) };
    default:
      throw new RangeError("a message of an unknown kind");
  }
}

function parse(bytes: Uint8Array): Readonly<Record<string, unknown>> {
  try {
    return recordOf(JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("utf8")));
  } catch (cause) {
    throw new RangeError("a message is no JSON object", { cause });
  }
}

function statementOf(value: unknown): FoldStatement {
  const { target, life, sequence, isComplete, blocks, digest } = recordOf(value);
  const words = listOf(digest);
  if (typeof isComplete !== "boolean" || words.length !== 2) throw new RangeError("a statement is malformed");
  return {
    target: textOf(target),
    life: textOf(life),
    sequence: integerOf(sequence),
    isComplete,
    blocks: integerOf(blocks),
    digest: [integerOf(words[0]), integerOf(words[1])],
  };
}

function originOf(value: unknown): Origin {
  const { router, epoch } = recordOf(value);
  const count = integerOf(epoch);
  if (count < 0) throw new RangeError("an epoch is negative");
  return { router: asRouterId(textOf(router)), epoch: count };
}

function recordOf(value: unknown): Readonly<Record<string, unknown>> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new RangeError("no object");
  return value as Readonly<Record<string, unknown>>;
}

function listOf(value: unknown): readonly unknown[] {
  if (!Array.isArray(value) || value.length > maxListLength) throw new RangeError("no list");
  return value;
}

function textOf(value: unknown): string {
  if (typeof value !== "string" || value === "" || value.length > maxIdLength) throw new RangeError("no text");
  return value;
}

function integerOf(value: unknown): number {
  if (!Number.isSafeInteger(value)) throw new RangeError("no whole number");
  return value as number;
}
