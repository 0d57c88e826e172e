import { asRouterId, fnv1a } from "@espalier/core";
import type { Origin } from "@espalier/mesh";
import type { EngineEpoch } from "../facts/engine-epoch.ts";
import { type FactEntry, readFactItem } from "../facts/fact-item.ts";
import type { FeedDeclaration } from "../facts/feed-declaration.ts";
import type { FeedClaim } from "../feeds/feed-claim.ts";

/** Name of the one array that a journal is. */
export const logName = "log";

/** First byte of a binary item: its kind. An empty item makes capacity for deletions to travel. */
export const itemKind = { empty: 0, facts: 1, placements: 2 } as const;

/** Characters of all texts of a declaration or claim together. */
export const maxStatementLength = 4_096;

/** One item of the log, decoded. */
export type LogContent =
  | { readonly kind: "empty" }
  | { readonly kind: "facts"; readonly entries: readonly FactEntry[] }
  | { readonly kind: "placements"; readonly item: Uint8Array }
  | { readonly kind: "feed"; readonly feed: number; readonly declaration: FeedDeclaration }
  | { readonly kind: "claim"; readonly claim: FeedClaim };

/** An item as the log holds it: bytes, or JSON that a browser can show. */
export type LogValue = Uint8Array | FeedStatement | ClaimStatement;

/** Fields of JSON items whose names in the protocol differ from ours. */
export const statementFields = { epoch: "life", quality: "worth" } as const;

interface FeedStatement {
  readonly feed: number;
  readonly target: string;
  readonly [statementFields.epoch]: EngineEpoch | null;
}

interface ClaimStatement {
  readonly claim: Omit<FeedClaim, "quality"> & { readonly [statementFields.quality]: FeedClaim["quality"] };
}

/** Prepends the byte of its kind to a payload. */
export function binaryItem(kind: number, payload: Uint8Array): Uint8Array {
  const item = new Uint8Array(payload.length + 1);
  item[0] = kind;
  item.set(payload, 1);
  return item;
}

/** @throws RangeError for bytes that are no item */
export function readBinaryItem(bytes: Uint8Array): LogContent {
  switch (bytes[0]) {
    case itemKind.empty:
      if (bytes.length !== 1) throw new RangeError("an empty item that is not empty");
      return { kind: "empty" };
    case itemKind.facts:
      return { kind: "facts", entries: readFactItem(bytes.subarray(1)) };
    case itemKind.placements:
      return { kind: "placements", item: bytes.subarray(1) };
    default:
      throw new RangeError("an item of an unknown kind");
  }
}

export function feedStatement(feed: number, { target, epoch }: FeedDeclaration): FeedStatement {
  return { feed, target, [statementFields.epoch]: epoch };
}

export function claimStatement({ target, stamp, quality, state, reason, unusable }: FeedClaim): ClaimStatement {
  return { claim: { target, stamp, [statementFields.quality]: quality, state, reason, unusable } };
}

/** @throws RangeError for what is neither a declaration nor a claim */
export function readStatement(value: unknown): LogContent {
  const fields = asRecord(value);
  if (fields.claim !== undefined) return { kind: "claim", claim: readClaim(asRecord(fields.claim)) };
  const feed = count(fields.feed);
  const target = text(fields.target);
  const written = fields[statementFields.epoch];
  const epoch = written === null ? null : readEpoch(asRecord(written));
  if (target.length + (epoch?.predecessor?.length ?? 0) > maxStatementLength) throw new RangeError("texts too long");
  return { kind: "feed", feed, declaration: { target, epoch } };
}

/** @throws RangeError when other routers would refuse it */
export function checkStatement(value: FeedStatement | ClaimStatement): void {
  readStatement(value);
}

function readEpoch(fields: Readonly<Record<string, unknown>>): EngineEpoch {
  const { timestampUs, predecessor } = fields;
  return {
    sequence: count(fields.sequence),
    timestampUs: timestampUs === -1 ? -1 : count(timestampUs),
    checksum: count(fields.checksum),
    predecessor: predecessor === null ? null : text(predecessor),
  };
}

const qualities: ReadonlySet<unknown> = new Set(["complete", "partial", "void", "none"]);

function readClaim(fields: Readonly<Record<string, unknown>>): FeedClaim {
  const { [statementFields.quality]: quality, unusable } = fields;
  if (!qualities.has(quality)) throw new RangeError("a claim of unknown quality");
  if (typeof fields.stamp !== "number" || !Number.isFinite(fields.stamp)) throw new RangeError("a claim without stamp");
  const claim: FeedClaim = {
    target: text(fields.target),
    stamp: fields.stamp,
    quality: quality as FeedClaim["quality"],
    state: text(fields.state),
    reason: text(fields.reason),
    unusable: unusable === null ? null : text(unusable),
  };
  const { target, state, reason } = claim;
  if (target.length + state.length + reason.length + (claim.unusable?.length ?? 0) > maxStatementLength) {
    throw new RangeError("texts too long");
  }
  return claim;
}

function asRecord(value: unknown): Readonly<Record<string, unknown>> {
  if (typeof value !== "object" || value === null) throw new RangeError("the statement is not an object");
  return value as Readonly<Record<string, unknown>>;
}

function text(value: unknown): string {
  if (typeof value !== "string") throw new RangeError("a statement lacks a text");
  return value;
}

function count(value: unknown): number {
  if (typeof value !== "number" || !Number.isSafeInteger(value) || value < 0) {
    throw new RangeError("a statement lacks a number");
  }
  return value;
}

/** A journal's name in characters; router ids that make it longer cannot take part. */
export const maxDocumentNameLength = 256;

const pattern = /^journal\/([^/]+)\/([^/]+)\/(0|[1-9]\d{0,15})$/;

/** The name of the document that one epoch of a router writes. */
export function journalName(pool: string, { router, epoch }: Origin): string {
  return `journal/${pool}/${router}/${epoch}`;
}

/** @returns undefined for the name of anything but a journal of this pool */
export function parseJournalName(pool: string, name: string): Origin | undefined {
  if (name.length > maxDocumentNameLength) return undefined;
  const match = pattern.exec(name);
  if (match === null || match[1] !== pool) return undefined;
  const epoch = Number(match[3]);
  if (!Number.isSafeInteger(epoch)) return undefined;
  return { router: asRouterId(match[2]!), epoch };
}

/** The Yjs client that writes a journal: FNV-1a of its name. One document has one writer, so it need not be unique. */
export function journalClient(name: string): number {
  return fnv1a(name);
}
