import type { Cancel, Clock, Scheduler } from "@espalier/core";
import type { DocumentState, DocumentUpdate, Origin, ReplicatedDocuments } from "@espalier/mesh";
import * as Y from "yjs";

/** The sections of an overview, a key of its map each. */
export const overviewSections = ["engines", "load", "links", "queues", "traffic", "status"] as const;

type OverviewSection = (typeof overviewSections)[number];

/** Of a list whose JSON is longer, the first entries that fit are kept; any other section is replaced by `{ tooLarge: true, sizeBytes }`. */
export const maxOverviewSectionBytes = 65_536;

/** Changes of a section reach readers at most this often. */
export const overviewIntervalMs = 1_000;

/** Client ids reserved for sections after each millisecond of the epoch. */
const clientIdsPerEpoch = 8;

export interface OverviewDocumentOptions {
  readonly origin: Origin;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
}

/** A small document about one router, for browsers that follow it; never sent to other routers. */
export interface OverviewDocument extends Pick<ReplicatedDocuments, "state" | "diff" | "onUpdate"> {
  readonly name: string;
  /**
   * Replaces sections, all of them in one go. Writes nothing for a value that is unchanged.
   *
   * @param values plain JSON by section
   */
  set(values: Readonly<Partial<Record<OverviewSection, unknown>>>): void;
  stop(): void;
}

/**
 * Makes the document `overview/<router>`, whose map `overview` has the sections as keys.
 *
 * Every section has a Yjs client id of its own: replaced entries of one client id with consecutive clocks merge into
 * one struct, so the document stays as small as its present contents, however often it changes. Client ids rise with
 * the epoch, because of two concurrent entries of a Y.Map the one with the higher client id wins: a browser that knew
 * this router's earlier epoch takes over the later one's entries.
 */
export function createOverviewDocument({ origin, clock, scheduler }: OverviewDocumentOptions): OverviewDocument {
  const name = `overview/${origin.router}`;
  const doc = new Y.Doc();
  const map = doc.getMap<unknown>("overview");
  const written = new Map<OverviewSection, string>();
  const pending = new Map<OverviewSection, string>();
  const listeners = new Set<(update: DocumentUpdate, isOwn: boolean) => void>();
  let lastWriteMs = Number.NEGATIVE_INFINITY;
  let cancelWrite: Cancel | undefined;

  const write = (): void => {
    cancelWrite = undefined;
    lastWriteMs = clock.nowMs();
    for (const [section, text] of pending) {
      written.set(section, text);
      doc.clientID = origin.epoch * clientIdsPerEpoch + overviewSections.indexOf(section);
      map.set(section, JSON.parse(text));
    }
    pending.clear();
  };
  doc.on("update", (bytes: Uint8Array) => {
    for (const listener of [...listeners]) listener({ name, from: 0, to: 0, bytes }, true);
  });

  return {
    name,
    set(values) {
      for (const section of overviewSections) {
        if (!Object.hasOwn(values, section)) continue;
        const text = boundedJson(values[section]);
        if (text === written.get(section)) pending.delete(section);
        else pending.set(section, text);
      }
      if (pending.size === 0 || cancelWrite) return;
      const waitMs = lastWriteMs + overviewIntervalMs - clock.nowMs();
      if (waitMs <= 0) write();
      else cancelWrite = scheduler.after(waitMs, write);
    },
    state(asked): DocumentState | undefined {
      if (asked !== name) return undefined;
      return { name, origin: undefined, clock: 0, byteLength: Y.encodeStateAsUpdate(doc).length };
    },
    *diff(asked, stateVector) {
      if (asked === name) yield { name, from: 0, to: 0, bytes: missingIn(doc, stateVector) };
    },
    onUpdate(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    stop() {
      cancelWrite?.();
      listeners.clear();
      doc.destroy();
    },
  };
}

function boundedJson(value: unknown): string {
  if (Array.isArray(value)) return boundedList(value);
  const text = JSON.stringify(value) ?? "null";
  const sizeBytes = Buffer.byteLength(text);
  return sizeBytes <= maxOverviewSectionBytes ? text : JSON.stringify({ tooLarge: true, sizeBytes });
}

/** Entries are written once each: lists are most of an overview. */
function boundedList(entries: readonly unknown[]): string {
  const texts: string[] = [];
  let sizeBytes = "[]".length;
  for (const entry of entries) {
    const text = JSON.stringify(entry) ?? "null";
    sizeBytes += Buffer.byteLength(text) + (texts.length > 0 ? ",".length : 0);
    if (sizeBytes > maxOverviewSectionBytes) break;
    texts.push(text);
  }
  return `[${texts.join()}]`;
}

function missingIn(doc: Y.Doc, stateVector: Uint8Array): Uint8Array {
  try {
    return Y.encodeStateAsUpdate(doc, stateVector);
  } catch (cause) {
    throw new RangeError("a state vector cannot be read", { cause });
  }
}
