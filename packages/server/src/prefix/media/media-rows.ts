import { parseJson } from "@espalier/core";
import type { BindingStore } from "@espalier/routing";

/** What engines of a model make of an image, audio or video: it stands for one token of the chat template. */
export interface MediaRow {
  /** The engine's name of the content. */
  readonly identifier: string;
  /** Tokens from the replaced one to the end of what the template writes for the part. */
  readonly back: number;
  /** Tokens per block of the engines. */
  readonly engineBlockSize: number;
  /** The tokens in its place: pairs of a token and how often it follows itself. */
  readonly runs: readonly number[];
}

/** The rows of all models, as all routers share them. */
export type MediaRows = ReturnType<typeof createMediaRows>;

/** Placeholder tokens of one image, audio or video. */
export const maxMediaTokens = 131_072;
/** Bytes of a shared row; one that is longer is not shared. */
export const maxRowBytes = 1_024;

const ttlMs = 86_400_000;
/** A row in use is renewed once less than this share of its time is left. */
const renewedShare = 3 / 4;

export function createMediaRows(store: Pick<BindingStore, "get" | "set" | "leftMs" | "forget">) {
  return {
    /** @param hash of the content, see `mediaHash` */
    get: (model: string, hash: string): MediaRow | undefined => readRow(store.get(keyOf(model, hash))),
    /** Keeps a row that was used. */
    renew(model: string, hash: string): void {
      const key = keyOf(model, hash);
      const value = store.get(key);
      if (value !== undefined && store.leftMs(key) < renewedShare * ttlMs) store.set(key, value, ttlMs);
    },
    /** @returns false for a row that is too long */
    set(model: string, hash: string, { identifier, back, engineBlockSize, runs }: MediaRow): boolean {
      const value = JSON.stringify([identifier, back, engineBlockSize, ...runs]);
      if (Buffer.byteLength(value) > maxRowBytes) return false;
      store.set(keyOf(model, hash), value, ttlMs);
      return true;
    },
    forget: (model: string, hash: string): void => store.forget(keyOf(model, hash)),
  };
}

const keyOf = (model: string, hash: string): string => `media\n${model}\n${hash}`;

/** @returns undefined for a text that is no row */
function readRow(text: string | undefined): MediaRow | undefined {
  if (text === undefined) return undefined;
  const [identifier, back, engineBlockSize, ...runs] = parsedList(text);
  const isRow = typeof identifier === "string" && isCount(back) && isCount(engineBlockSize) && areRuns(runs);
  return isRow ? { identifier, back, engineBlockSize, runs } : undefined;
}

/** The elements of a JSON list; none for another text. */
export function parsedList(text: string): readonly unknown[] {
  const value = parseJson(text);
  return Array.isArray(value) ? value : [];
}

export const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) > 0;

/** Whether these are pairs of a token and a count, of at most `maxMediaTokens` tokens. */
export function areRuns(runs: readonly unknown[]): runs is readonly number[] {
  if (runs.length === 0 || runs.length % 2 > 0) return false;
  let sum = 0;
  for (let at = 0; at < runs.length; at += 2) {
    const [token, count] = [runs[at], runs[at + 1]];
    if (!Number.isInteger(token) || (token as number) < 0 || (token as number) > 0xffff_ffff || !isCount(count))
      return false;
    sum += count;
    if (sum > maxMediaTokens) return false;
  }
  return true;
}

/** Run-length encodes the tokens from `start` to `end`. */
export function runsOf(tokens: Uint32Array, start = 0, end = tokens.length): readonly number[] {
  const runs: number[] = [];
  for (let at = start; at < end; at++) {
    if (at > start && runs.at(-2) === tokens[at]) runs[runs.length - 1]!++;
    else runs.push(tokens[at]!, 1);
  }
  return runs;
}

export function tokensOfRuns(runs: readonly number[]): Uint32Array {
  let length = 0;
  for (let at = 1; at < runs.length; at += 2) length += runs[at]!;
  const tokens = new Uint32Array(length);
  let next = 0;
  for (let at = 0; at < runs.length; at += 2) {
    tokens.fill(runs[at]!, next, next + runs[at + 1]!);
    next += runs[at + 1]!;
  }
  return tokens;
}
