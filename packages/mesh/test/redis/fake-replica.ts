import { asRouterId, EspalierError } from "@espalier/core";
import { type Origin, originKey } from "../../src/origin.ts";
import type { FoldStatement, ReplicaPorts, SnapshotRequest } from "../../src/replica-ports.ts";
import type { ApplyOutcome, DocumentUpdate, ReplicatedDocuments } from "../../src/replicated-documents.ts";
import { FakeNotes } from "../fake-notes.ts";

const registryName = "registry/default";
const encode = (value: unknown): Uint8Array => new TextEncoder().encode(JSON.stringify(value));

function decode(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    throw new EspalierError("mesh_update_refused");
  }
}

function textsOf(value: unknown): string[] {
  if (!Array.isArray(value) || value.some((text) => typeof text !== "string")) {
    throw new EspalierError("mesh_update_refused");
  }
  return value;
}

const nameOf = ({ router, epoch }: Origin): string => `journal/default/${router}/${epoch}`;

function originOf(name: string): Origin {
  const [, , router, epoch] = name.split("/");
  return { router: asRouterId(router!), epoch: Number(epoch) };
}

/** A replica whose journals are lists of texts, and whose registry is a set of them. */
export class FakeReplica implements ReplicaPorts {
  origin: Origin;
  readonly registry = new Set<string>();
  /** Gauges of the others, by router. */
  readonly loads = new Map<string, number>();
  /** State that snapshots carry. */
  readonly state = new Set<string>();
  readonly imported: string[][] = [];
  readonly unavailable: SnapshotRequest[] = [];
  readonly compared: { readonly statement: FoldStatement; readonly from: Origin }[] = [];
  readonly gone: string[] = [];
  /** Routers that have not told all their gauges yet. */
  readonly unreported = new Set<string>();
  /** Names of journals that are given up for good. */
  readonly droppedJournals = new Set<string>();
  readonly ownStatements: FoldStatement[] = [];
  readonly #journals = new Map<string, string[]>();
  readonly #updateListeners = new Set<(update: DocumentUpdate, isOwn: boolean) => void>();
  readonly #frameListeners = new Set<(frame: Uint8Array) => void>();
  readonly #requestListeners = new Set<(request: SnapshotRequest) => void>();
  #load = 0;

  constructor(id: string, epoch = 1) {
    this.origin = { router: asRouterId(id), epoch };
    this.#journals.set(this.name, []);
  }

  get name(): string {
    return nameOf(this.origin);
  }

  /** Items of the journal of an origin, as far as they are known. */
  journal(of: Origin): readonly string[] {
    return this.#journals.get(nameOf(of)) ?? [];
  }

  /** Adds an item to the own journal. */
  write(text: string): void {
    const to = this.#journalNamed(this.name).push(text);
    this.#tell({ name: this.name, from: to - 1, to, bytes: encode([text]) });
  }

  /** Adds an item to the document that everybody writes. */
  register(text: string): void {
    this.registry.add(text);
    this.#tell({ name: registryName, from: 0, to: 0, bytes: encode([text]) });
  }

  /** Sends gauges. */
  setLoad(value: number): void {
    this.#load = value;
    for (const listener of [...this.#frameListeners]) listener(this.load.fullFrames()[0]!);
  }

  request(request: SnapshotRequest): void {
    for (const listener of this.#requestListeners) listener(request);
  }

  readonly documents: ReplicatedDocuments = {
    list: () => [
      { name: registryName, origin: undefined, clock: 0, byteLength: this.registry.size },
      ...[...this.#journals].map(([name, { length }]) => {
        return { name, origin: originOf(name), clock: length, byteLength: length };
      }),
    ],
    state: (name) => this.documents.list().find((state) => state.name === name),
    stateVector: (name) => (name === registryName ? encode([...this.registry].sort()) : Uint8Array.of(0)),
    diff: (name, _stateVector, maxBytes) => this.#pieces(name, maxBytes),
    apply: (update) => {
      if (update.name !== registryName) return this.#applyJournal(update);
      for (const text of textsOf(decode(update.bytes))) this.registry.add(text);
      return "applied";
    },
    onUpdate: (listener) => {
      this.#updateListeners.add(listener);
      return () => this.#updateListeners.delete(listener);
    },
  };

  readonly notes = new FakeNotes(() => this.origin);

  readonly load: ReplicaPorts["load"] = {
    onFrame: (listener) => {
      this.#frameListeners.add(listener);
      return () => this.#frameListeners.delete(listener);
    },
    fullFrames: () => [encode({ ...this.origin, load: this.#load })],
    relayFrames: () => [],
    setPeerCount: () => {},
    receive: (frame, isCredible = () => true) => {
      const { router, epoch, load } = (decode(frame) ?? {}) as Record<string, unknown>;
      if (typeof router !== "string" || typeof load !== "number") throw new EspalierError("mesh_frame_invalid");
      const origin = { router: asRouterId(router), epoch: Number(epoch) };
      if (!isCredible(origin)) return { origin, isNews: false };
      const isNews = this.loads.get(router) !== load;
      this.loads.set(router, load);
      return { origin, isNews };
    },
    hasAllOf: ({ router }) => this.loads.has(router) && !this.unreported.has(router),
    originGone: (gone) => {
      this.gone.push(originKey(gone));
      this.loads.set(gone.router, 0);
    },
  };

  readonly snapshots: ReplicaPorts["snapshots"] = {
    exportFrames: (_maxBytes, targets) => this.#frames(targets),
    beginImport: () => {
      const frames: string[] = [];
      return {
        frame: (bytes) => void frames.push(JSON.parse(new TextDecoder().decode(bytes))),
        end: () => {
          for (const text of frames) this.state.add(text);
          this.imported.push(frames);
          return frames;
        },
        abort: () => {},
      };
    },
    onRequest: (listener) => {
      this.#requestListeners.add(listener);
      return () => this.#requestListeners.delete(listener);
    },
    unavailable: (request) => void this.unavailable.push(request),
  };

  statements(): readonly FoldStatement[] {
    return this.ownStatements;
  }

  compareStatement(statement: FoldStatement, from: Origin): void {
    this.compared.push({ statement, from });
  }

  highestEpoch(): number {
    return 0;
  }

  renewEpoch(above: number): void {
    const items = this.#journalNamed(this.name);
    this.#journals.delete(this.name);
    this.origin = { router: this.origin.router, epoch: above + 1 };
    this.#journals.set(this.name, items);
  }

  #tell(update: DocumentUpdate): void {
    for (const listener of [...this.#updateListeners]) listener(update, true);
  }

  #journalNamed(name: string): string[] {
    const known = this.#journals.get(name) ?? [];
    this.#journals.set(name, known);
    return known;
  }

  *#pieces(name: string, maxBytes: number): Generator<DocumentUpdate, void, undefined> {
    if (name === registryName) yield { name, from: 0, to: 0, bytes: encode([...this.registry]) };
    const step = Math.max(1, Math.floor(maxBytes / 64));
    const items = this.#journals.get(name) ?? [];
    for (let from = 0; from < items.length; from += step) {
      const some = items.slice(from, from + step);
      yield { name, from, to: from + some.length, bytes: encode(some) };
    }
  }

  *#frames(targets: readonly string[] | undefined): Generator<Uint8Array, void, undefined> {
    for (const text of [...this.state]) if (!targets || targets.includes(text)) yield encode(text);
  }

  #applyJournal(update: DocumentUpdate): ApplyOutcome {
    if (this.droppedJournals.has(update.name)) return "dropped";
    const items = textsOf(decode(update.bytes));
    const journal = this.#journalNamed(update.name);
    if (update.from > journal.length) return "gap";
    if (update.to <= journal.length) return "duplicate";
    journal.push(...items.slice(journal.length - update.from));
    return "applied";
  }
}
