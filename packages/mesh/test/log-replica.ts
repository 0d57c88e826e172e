import { createHash } from "node:crypto";
import { asRouterId, ByteReader, ByteWriter, EspalierError, type RouterId } from "@espalier/core";
import { type Origin, originKey } from "../src/origin.ts";
import type { FoldStatement, ReplicaPorts, SnapshotRequest } from "../src/replica-ports.ts";
import {
  type ApplyOutcome,
  DocumentFullError,
  type DocumentState,
  type DocumentUpdate,
} from "../src/replicated-documents.ts";
import type { LoadExchange } from "../src/rows/plane-exchange.ts";
import { FakeNotes } from "./fake-notes.ts";

/** As replicas of facts have it: they do not make smaller frames of a snapshot. */
const minSnapshotFrameBytes = 65_536;

export const sharedName = "registry/1";
/** An item that starts with this byte is refused, as one that its writer may not write. */
export const forbiddenByte = 0xff;

interface Log {
  readonly origin: Origin | undefined;
  /** Items by writer; a journal has one writer, 0. */
  readonly items: Map<number, Uint8Array[]>;
}

export const journalName = ({ router, epoch }: Origin): string => `journal/default/${router}/${epoch}`;

function originOf(name: string): Origin {
  const [, , router, epoch] = name.split("/");
  return { router: asRouterId(router ?? ""), epoch: Number(epoch) };
}

/** A replica whose documents are append-only logs, whose state is a set of words, and whose load is one number. */
export class LogReplica implements ReplicaPorts {
  origin: Origin;
  readonly logs = new Map<string, Log>();
  /** Documents that have no room here. */
  readonly full = new Set<string>();
  /** How often something of them came. */
  tried = 0;
  readonly gauges = new Map<string, { origin: Origin; counter: number; value: number; frame: Uint8Array }>();
  readonly gone: string[] = [];
  /** Origins that have not told all their gauges yet. */
  readonly unreported = new Set<string>();
  /** To how many peers its gauges go. */
  peerCount = 0;
  /** Applied updates and pieces, as name and end. */
  readonly applied: string[] = [];
  duplicates = 0;
  gaps = 0;
  readonly dropped = new Set<string>();
  /** Words that a snapshot brings. */
  readonly state = new Set<string>();
  readonly stateFrames: Uint8Array[] = [];
  readonly given: SnapshotRequest[] = [];
  readonly unavailable: SnapshotRequest[] = [];
  aborted = 0;
  activeImports = 0;
  mostImports = 0;
  stated: FoldStatement[] = [];
  readonly compared: { statement: FoldStatement; from: Origin }[] = [];
  readonly #id: number;
  #counter = 0;
  readonly #updateListeners = new Set<(update: DocumentUpdate, isOwn: boolean) => void>();
  readonly #frameListeners = new Set<(frame: Uint8Array) => void>();
  readonly #requestListeners = new Set<(request: SnapshotRequest) => void>();

  constructor(router: string, epoch = 1) {
    this.origin = { router: asRouterId(router), epoch };
    // No epoch writes under the id of another one.
    this.#id = [...`${router}${epoch}`].reduce((sum, letter) => sum * 31 + letter.charCodeAt(0), 7) % 1_000_000;
    this.logs.set(journalName(this.origin), { origin: this.origin, items: new Map([[0, []]]) });
    this.logs.set(sharedName, { origin: undefined, items: new Map() });
  }

  get ownName(): string {
    return journalName(this.origin);
  }

  /** Adds an item to the own journal, or to the shared document. */
  write(item: Uint8Array, name = this.ownName): void {
    const writer = name === sharedName ? this.#id : 0;
    const items = this.#items(name, writer);
    items.push(item);
    const update = this.#update(name, writer, items.length - 1, items.length);
    for (const listener of this.#updateListeners) listener(update, true);
  }

  setLoad(value: number): void {
    this.#counter += 1;
    this.#gauge(this.origin, this.#counter, value);
    for (const listener of this.#frameListeners) listener(this.gauges.get(originKey(this.origin))!.frame);
  }

  ask(request: SnapshotRequest): void {
    for (const listener of this.#requestListeners) listener(request);
  }

  /** A hash of everything that was written, to be compared with that of another. */
  digest(): string {
    const hash = createHash("sha256");
    for (const [name, { items }] of [...this.logs].sort(([a], [b]) => (a < b ? -1 : 1))) {
      for (const [writer, list] of [...items].sort(([a], [b]) => a - b)) {
        for (const item of list) hash.update(`${name} ${writer} ${item.length} `).update(item);
      }
    }
    return hash.digest("hex");
  }

  readonly documents: ReplicaPorts["documents"] = {
    list: () => {
      const names = [...this.logs.keys()].sort((a, b) => Number(b === this.ownName) - Number(a === this.ownName));
      return names.map((name) => this.#state(name)!);
    },
    state: (name) => this.#state(name),
    stateVector: (name) => {
      const writer = new ByteWriter();
      const items = [...(this.logs.get(name)?.items ?? [])].sort(([a], [b]) => a - b);
      for (const [client, list] of items) {
        writer.varint(client);
        writer.varint(list.length);
      }
      return writer.copy();
    },
    diff: (name, vector, maxBytes) => this.#diff(name, vector, maxBytes),
    apply: (update) => this.#apply(update),
    onUpdate: (listener) => {
      this.#updateListeners.add(listener);
      return () => this.#updateListeners.delete(listener);
    },
  };

  readonly notes = new FakeNotes(() => this.origin);

  readonly load: LoadExchange = {
    onFrame: (listener) => {
      this.#frameListeners.add(listener);
      return () => this.#frameListeners.delete(listener);
    },
    fullFrames: () => {
      const own = this.gauges.get(originKey(this.origin));
      return [own?.frame ?? loadFrame(this.origin, 0, 0)];
    },
    relayFrames: () => [...this.gauges.values()].filter(({ origin }) => origin.router !== this.origin.router),
    receive: (frame, isCredible = () => true) => {
      try {
        const reader = new ByteReader(frame);
        const origin = { router: asRouterId(reader.text(64)), epoch: reader.varint() };
        const counter = reader.varint();
        const isNews = isCredible(origin) && counter > (this.gauges.get(originKey(origin))?.counter ?? -1);
        if (isNews) this.#gauge(origin, counter, reader.varint());
        return { origin, isNews };
      } catch {
        throw new EspalierError("mesh_frame_invalid");
      }
    },
    setPeerCount: (count) => {
      this.peerCount = count;
    },
    hasAllOf: (origin) => this.gauges.has(originKey(origin)) && !this.unreported.has(originKey(origin)),
    originGone: (origin) => {
      this.gone.push(originKey(origin));
      this.gauges.delete(originKey(origin));
    },
  };

  readonly snapshots: ReplicaPorts["snapshots"] = {
    exportFrames: (maxBytes, targets) => this.#export(maxBytes, targets),
    beginImport: () => {
      this.activeImports += 1;
      this.mostImports = Math.max(this.mostImports, this.activeImports);
      const words: string[] = [];
      return {
        frame: (bytes) => {
          this.stateFrames.push(bytes);
          words.push(new ByteReader(bytes).text(1_000_000));
        },
        end: () => {
          this.activeImports -= 1;
          for (const word of words) this.state.add(word);
          return words.map((word) => word.split(":")[0]!);
        },
        abort: () => {
          this.activeImports -= 1;
          this.aborted += 1;
        },
      };
    },
    onRequest: (listener) => {
      this.#requestListeners.add(listener);
      return () => this.#requestListeners.delete(listener);
    },
    unavailable: (request) => void this.unavailable.push(request),
  };

  statements(): readonly FoldStatement[] {
    return this.stated;
  }

  compareStatement(statement: FoldStatement, from: Origin): void {
    this.compared.push({ statement, from });
  }

  highestEpoch(router: RouterId): number {
    const epochs = [...this.logs.values()].map(({ origin }) => (origin?.router === router ? origin.epoch : 0));
    return Math.max(0, ...epochs);
  }

  renewEpoch(above: number): void {
    this.logs.delete(this.ownName);
    this.origin = { router: this.origin.router, epoch: above + 1 };
    this.logs.set(this.ownName, { origin: this.origin, items: new Map([[0, []]]) });
  }

  #state(name: string): DocumentState | undefined {
    const log = this.logs.get(name);
    if (log === undefined) return undefined;
    return { name, origin: log.origin, clock: log.origin ? (log.items.get(0)?.length ?? 0) : 0, byteLength: 0 };
  }

  #items(name: string, writer: number): Uint8Array[] {
    const log = this.logs.get(name) ?? {
      origin: name === sharedName ? undefined : originOf(name),
      items: new Map<number, Uint8Array[]>(),
    };
    this.logs.set(name, log);
    const items = log.items.get(writer) ?? [];
    log.items.set(writer, items);
    return items;
  }

  #update(name: string, writer: number, from: number, to: number): DocumentUpdate {
    const bytes = new ByteWriter();
    bytes.varint(writer);
    bytes.varint(from);
    for (const item of this.#items(name, writer).slice(from, to)) bytes.bytes(item);
    const isShared = name === sharedName;
    return { name, from: isShared ? 0 : from, to: isShared ? 0 : to, bytes: bytes.copy() };
  }

  #diff(name: string, vector: Uint8Array, maxBytes: number): Generator<DocumentUpdate, void, undefined> {
    const has = new Map<number, number>();
    const reader = new ByteReader(vector);
    while (reader.remaining > 0) has.set(reader.varint(), reader.varint());
    return this.#lacking(name, has, maxBytes);
  }

  *#lacking(
    name: string,
    has: ReadonlyMap<number, number>,
    maxBytes: number,
  ): Generator<DocumentUpdate, void, undefined> {
    for (const writer of this.logs.get(name)?.items.keys() ?? []) {
      let from = has.get(writer) ?? 0;
      while (from < this.#items(name, writer).length) {
        const items = this.#items(name, writer);
        let to = from + 1;
        let length = items[from]!.length;
        while (to < items.length && length + items[to]!.length < maxBytes) length += items[to++]!.length;
        yield this.#update(name, writer, from, to);
        from = to;
      }
    }
  }

  #apply(update: DocumentUpdate): ApplyOutcome {
    const { name } = update;
    if (this.dropped.has(name)) return "dropped";
    if (this.full.has(name)) {
      this.tried += 1;
      throw new DocumentFullError(`${name} is too large`);
    }
    const reader = new ByteReader(update.bytes);
    const items = this.#items(name, reader.varint());
    let at = reader.varint();
    if (at > items.length) {
      this.gaps += 1;
      return "gap";
    }
    const before = items.length;
    while (reader.remaining > 0) {
      const item = reader.bytes(10_000_000).slice();
      if (item[0] === forbiddenByte) throw new EspalierError("mesh_update_refused");
      if (at++ >= items.length) items.push(item);
    }
    if (items.length === before) {
      this.duplicates += 1;
      return "duplicate";
    }
    this.applied.push(`${name}:${items.length}`);
    for (const listener of this.#updateListeners) listener(update, false);
    return "applied";
  }

  *#export(maxBytes: number, targets?: readonly string[]): Generator<Uint8Array, void, undefined> {
    if (maxBytes < minSnapshotFrameBytes) throw new RangeError(`a frame of ${maxBytes} bytes is too small`);
    this.given.push({ targets, from: undefined });
    for (const word of this.state) {
      if (targets !== undefined && !targets.includes(word.split(":")[0]!)) continue;
      const writer = new ByteWriter();
      writer.text(word);
      if (writer.length > maxBytes) throw new RangeError("a word is too long");
      yield writer.copy();
    }
  }

  #gauge(origin: Origin, counter: number, value: number): void {
    this.gauges.set(originKey(origin), { origin, counter, value, frame: loadFrame(origin, counter, value) });
  }
}

export function loadFrame(origin: Origin, counter: number, value: number): Uint8Array {
  const writer = new ByteWriter();
  writer.text(origin.router);
  writer.varint(origin.epoch);
  writer.varint(counter);
  writer.varint(value);
  return writer.copy();
}
