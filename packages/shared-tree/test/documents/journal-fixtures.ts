import { asRouterId } from "@espalier/core";
import type { DocumentUpdate, Origin } from "@espalier/mesh";
import { createVirtualTime, type VirtualTime } from "@espalier/testing";
import { applyUpdate, Doc, mergeUpdates } from "yjs";
import type { JournalObserver } from "../../src/documents/journal.ts";
import { itemKind, readStatement } from "../../src/documents/journal-log.ts";
import { type JournalLimits, Journals } from "../../src/documents/journal-store.ts";
import { type CheckpointEntry, type FactEntry, type FactRecord, readFactItem } from "../../src/facts/fact-item.ts";
import type { FeedDeclaration } from "../../src/facts/feed-declaration.ts";
import type { FeedClaim } from "../../src/feeds/feed-claim.ts";

export const originOf = (router: string, epoch = 1): Origin => ({ router: asRouterId(router), epoch });

export interface TestStore {
  readonly store: Journals;
  readonly time: VirtualTime;
  /** Updates of this store's own journal, in order. */
  readonly updates: DocumentUpdate[];
}

export function storeOf(router: string, limits: Partial<JournalLimits> = {}, epoch = 1): TestStore {
  const time = createVirtualTime();
  const store = new Journals({ origin: originOf(router, epoch), clock: time.clock, limits });
  const updates: DocumentUpdate[] = [];
  store.onUpdate((update, isOwn) => {
    if (isOwn) updates.push(update);
  });
  return { store, time, updates };
}

/** Blocks that are stored, as the ops of a record. */
function storedOps(blocks: number, fill = 7): Uint8Array {
  const ops = new Uint8Array(8 * blocks + Math.ceil(blocks / 4)).fill(fill);
  for (let begun = 0, at = 0; begun < blocks; begun += 4, at += 33) ops[at] = (Math.min(4, blocks - begun) - 1) * 32;
  return ops;
}

export function record(feed: number, sequence: number, blocks = 1): FactRecord {
  const timestampUs = 1_800_000_000_000_000 + sequence;
  return { kind: "record", feed, sequence, timestampUs, checksum: sequence, isComplete: true, ops: storedOps(blocks) };
}

export function checkpoint(feed: number, sequence: number): CheckpointEntry {
  const timestampUs = 1_800_000_000_000_000 + sequence;
  const mark = { sequence, timestampUs, checksum: sequence };
  return { kind: "checkpoint", feed, ...mark, isComplete: true, blocks: 1, digest: [1, 2] };
}

export const feedOf = (target: string, sequence = 0): FeedDeclaration => ({
  target,
  epoch: { sequence, timestampUs: 1_800_000_000_000_000, checksum: 9, predecessor: null },
});

export const claimOf = (target: string, stamp = 1): FeedClaim => ({
  ...{ target, stamp, quality: "complete", state: "live", reason: "complete", unusable: null },
});

/** Notes as texts what an observer is told. */
export function recordingObserver(): { readonly reported: string[]; readonly observer: JournalObserver } {
  const reported: string[] = [];
  return {
    reported,
    observer: {
      feedDeclared: ({ router }, feed, { target }) => reported.push(`${router} feed ${feed} ${target}`),
      claimChanged: ({ router }, target, claim) => reported.push(`${router} claim ${target} ${claim?.stamp}`),
      facts: ({ router }, entries) => reported.push(`${router} facts ${entries.map(textOf)}`),
      placements: ({ router }, item) => reported.push(`${router} placements ${item}`),
      journalDropped: ({ router, epoch }) => reported.push(`${router} dropped ${epoch}`),
    },
  };
}

export function textOf(entry: FactEntry): string {
  const at = entry.kind === "gap" ? `${entry.from}-${entry.to}` : entry.sequence;
  return `${entry.kind} ${entry.feed}.${at}`;
}

/** Brings `to` what it lacks of a document of `from`. @returns the pieces */
export function sync(from: Journals, to: Journals, name: string, maxBytes = 65_536): DocumentUpdate[] {
  const pieces = [...from.diff(name, to.stateVector(name), maxBytes)];
  for (const piece of pieces) to.apply(piece);
  return pieces;
}

/** The whole document for whoever fetches it; of an unknown document, an update that says nothing. */
export function wholeUpdate(store: Pick<Journals, "diff">, name: string): Uint8Array {
  const pieces = [...store.diff(name, Uint8Array.of(0), Number.POSITIVE_INFINITY)];
  return pieces.length === 1 ? pieces[0]!.bytes : mergeUpdates(pieces.map(({ bytes }) => bytes));
}

/** What a replica has of a journal, as stock Yjs reads it. */
function logOf(store: Journals, { router, epoch }: Origin): unknown[] {
  const doc = new Doc();
  applyUpdate(doc, wholeUpdate(store, `journal/default/${router}/${epoch}`));
  return doc.getArray("log").toArray();
}

/** Everything that a replica of a journal holds of facts, by item. */
export function factItemsOf(store: Journals, origin: Origin): FactEntry[][] {
  return logOf(store, origin).flatMap((item) =>
    item instanceof Uint8Array && item[0] === itemKind.facts ? [readFactItem(item.subarray(1))] : [],
  );
}

export const entriesOf = (store: Journals, origin: Origin): FactEntry[] => factItemsOf(store, origin).flat();

/** Claims that a replica of a journal holds, by target. */
export function claimsOf(store: Journals, origin: Origin): Map<string, FeedClaim> {
  const claims = logOf(store, origin).flatMap((item) => {
    const content = item instanceof Uint8Array ? undefined : readStatement(item);
    return content?.kind === "claim" ? [content.claim] : [];
  });
  return new Map(claims.map((claim) => [claim.target, claim]));
}

/** What a feed's number in a journal stands for. */
export const declarationOf = (store: Journals, origin: Origin, feed: number): FeedDeclaration | undefined =>
  [...store.feedsOf(origin)].find(({ number }) => number === feed)?.declaration;
