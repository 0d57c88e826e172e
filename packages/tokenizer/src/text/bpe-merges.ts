import { createPairTable, type PairTable } from "./pair-table.ts";
import type { TokenizerPart } from "./tokenizer-part.ts";

/** Ranks and positions share a double (see the merge queue). */
const maxMerges = 2 ** 24;
/** What SentencePiece writes for a space. */
const spaceMark = "\u2581";

export interface Merges {
  /** From a pair of ids to (rank, merged id). */
  readonly table: PairTable;
  /**
   * The code unit of the space mark when no merge joins another character with a mark that follows it. A text can then
   * be cut there without changing its tokens, and words are met again in the cache.
   */
  readonly splitsAt: number | undefined;
}

/** @throws EspalierError `config_invalid` */
export function readMerges(part: TokenizerPart, vocabulary: ReadonlyMap<string, number>): Merges {
  const list = part.raw.merges;
  if (!Array.isArray(list)) throw part.wrong("has no list of merges");
  if (list.length > maxMerges) throw part.wrong(`has more than ${maxMerges} merges`);
  const prefix = part.text("continuing_subword_prefix", "");
  const table = createPairTable(list.length);
  let crosses = !vocabulary.has(spaceMark);
  for (const [rank, entry] of list.entries()) {
    const [left, right, ...rest] = Array.isArray(entry) ? entry : String(entry).split(" ");
    if (typeof left !== "string" || typeof right !== "string" || rest.length > 0) {
      throw part.wrong(`has a malformed merge at ${rank}`);
    }
    const [leftId, rightId, mergedId] = [left, right, left + right.slice(prefix.length)].map((token) =>
      vocabulary.get(token),
    );
    if (leftId === undefined || rightId === undefined || mergedId === undefined) {
      throw part.wrong(`merges at ${rank} what the vocabulary lacks`);
    }
    table.set(leftId, rightId, rank, mergedId);
    crosses ||= right.startsWith(spaceMark) && !left.endsWith(spaceMark);
  }
  return { table, splitsAt: crosses ? undefined : spaceMark.charCodeAt(0) };
}
