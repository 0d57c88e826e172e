import type { Cancel } from "@espalier/core";
import type { ApplyOutcome, DocumentState, DocumentUpdate } from "@espalier/mesh";
import {
  applyUpdate,
  ContentDoc,
  type Doc,
  decodeUpdate,
  encodeStateAsUpdate,
  type GC,
  getState,
  ID,
  Item,
  type Skip,
} from "yjs";

/** Documents that are attached at a time. */
export const maxSharedDocuments = 64;

type DeletedRanges = ReturnType<typeof decodeUpdate>["ds"];

interface Attached {
  readonly doc: Doc;
  /** Undefined after a change, until it is asked for. */
  byteLength: number | undefined;
}

const remote = Symbol("an update of another replica");
/** An update that says nothing. */
const emptyUpdateBytes = 2;

/** Documents that are no journals: plain Yjs documents that others create. */
export class SharedDocuments {
  readonly #attached = new Map<string, Attached>();
  readonly #onUpdate: (update: DocumentUpdate, isOwn: boolean) => void;

  constructor(onUpdate: (update: DocumentUpdate, isOwn: boolean) => void) {
    this.#onUpdate = onUpdate;
  }

  get names(): readonly string[] {
    return [...this.#attached.keys()];
  }

  doc(name: string): Doc | undefined {
    return this.#attached.get(name)?.doc;
  }

  /** @throws RangeError for a name that is taken, and beyond the bound */
  attach(name: string, doc: Doc): Cancel {
    if (this.#attached.has(name)) throw new RangeError(`${name} is attached`);
    if (this.#attached.size >= maxSharedDocuments) throw new RangeError("too many shared documents");
    const attached: Attached = { doc, byteLength: undefined };
    const listener = (bytes: Uint8Array, from: unknown): void => {
      attached.byteLength = undefined;
      this.#onUpdate({ name, from: 0, to: 0, bytes }, from !== remote);
    };
    this.#attached.set(name, attached);
    doc.on("update", listener);
    return () => {
      doc.off("update", listener);
      if (this.#attached.get(name) === attached) this.#attached.delete(name);
    };
  }

  state(name: string): DocumentState | undefined {
    const attached = this.#attached.get(name);
    if (attached === undefined) return undefined;
    attached.byteLength ??= encodeStateAsUpdate(attached.doc).length;
    return { name, origin: undefined, clock: 0, byteLength: attached.byteLength };
  }

  *diff(name: string, stateVector: Uint8Array): Generator<DocumentUpdate, void, undefined> {
    const doc = this.doc(name);
    if (doc === undefined) return;
    const bytes = encodeStateAsUpdate(doc, stateVector);
    if (bytes.length > emptyUpdateBytes) yield { name, from: 0, to: 0, bytes };
  }

  /**
   * Applies an update of an attached document. An update that would have to wait for another is refused whole.
   *
   * @throws Error (of any kind) for what cannot be applied
   */
  apply(name: string, bytes: Uint8Array): ApplyOutcome {
    const { doc } = this.#attached.get(name)!;
    const { structs, ds } = decodeUpdate(bytes);
    if (missesAnything(doc, structs, ds)) return "gap";
    let isChanged = false;
    const listener = (): void => {
      isChanged = true;
    };
    doc.on("update", listener);
    try {
      applyUpdate(doc, bytes, remote);
    } finally {
      doc.off("update", listener);
    }
    return isChanged ? "applied" : "duplicate";
  }
}

/** Whether an update refers to anything that neither the document nor the update has. */
function missesAnything(doc: Doc, structs: readonly (Item | GC | Skip)[], ds: DeletedRanges): boolean {
  const ends = new Map<number, number>();
  const endOf = (client: number): number => ends.get(client) ?? getState(doc.store, client);
  for (const struct of structs) {
    const { client, clock } = struct.id;
    if (clock > endOf(client)) return true;
    ends.set(client, Math.max(endOf(client), clock + struct.length));
  }
  for (const struct of structs) {
    if (!(struct instanceof Item)) continue;
    if (struct.content instanceof ContentDoc) throw new RangeError("a document in a document");
    for (const id of [struct.origin, struct.rightOrigin, parentOf(struct)]) {
      if (id !== null && id.clock >= endOf(id.client)) return true;
    }
  }
  for (const [client, ranges] of ds.clients) {
    for (const { clock, len } of ranges) if (clock + len > endOf(client)) return true;
  }
  return false;
}

/** The parent type of an item, unless it is a root type. */
function parentOf({ parent }: Item): { readonly client: number; readonly clock: number } | null {
  return parent instanceof ID ? parent : null;
}
