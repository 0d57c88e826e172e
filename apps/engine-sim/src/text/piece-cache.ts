import type { TextTokenizer } from "@espalier/tokenizer";

/** Tokenizes texts of which most was seen before: turns of long conversations, shared system prompts. */
export interface PieceCache {
  /** The tokens of a text, without tokens around it. */
  encode(text: string): Uint32Array;
  /** What is kept, in bytes: two for each character, four for each token, and what an entry costs. */
  readonly sizeBytes: number;
}

const defaultCapacityBytes = 64 * 1024 * 1024;

/** Of an entry beside its text and tokens, roughly. */
const entryBytes = 160;

/**
 * Texts are cut at the ends of special tokens, where nothing before depends on what follows, so that a message costs its
 * tokens once.
 *
 * @param capacityBytes the pieces that were not used for longest give way
 */
export function createPieceCache(tokenizer: TextTokenizer, capacityBytes = defaultCapacityBytes): PieceCache {
  /** In order of use. */
  const pieces = new Map<string, Uint32Array>();
  let sizeBytes = 0;

  const costOf = (key: string, tokens: Uint32Array): number => 2 * key.length + tokens.byteLength + entryBytes;
  const remember = (key: string, tokens: Uint32Array): void => {
    const cost = costOf(key, tokens);
    if (cost > capacityBytes) return;
    pieces.set(key, tokens);
    sizeBytes += cost;
    for (const [oldest, row] of pieces) {
      if (sizeBytes <= capacityBytes) return;
      pieces.delete(oldest);
      sizeBytes -= costOf(oldest, row);
    }
  };
  const tokensOf = (piece: string, isFirst: boolean): Uint32Array => {
    // Some tokenizers treat the start of a text in a way of its own.
    const key = isFirst ? `^${piece}` : `+${piece}`;
    const known = pieces.get(key);
    if (known) {
      pieces.delete(key);
      pieces.set(key, known);
      return known;
    }
    const tokens = tokenizer.encodePiece(piece, isFirst);
    remember(key, tokens);
    return tokens;
  };
  return {
    get sizeBytes() {
      return sizeBytes;
    },
    encode(text) {
      const rows: Uint32Array[] = [];
      let start = 0;
      for (const end of [...tokenizer.cuts(text), text.length]) {
        if (end > start) rows.push(tokensOf(text.slice(start, end), start === 0));
        start = end;
      }
      return joined(rows);
    },
  };
}

function joined(rows: readonly Uint32Array[]): Uint32Array {
  const tokens = new Uint32Array(rows.reduce((sum, row) => sum + row.length, 0));
  let at = 0;
  for (const row of rows) {
    tokens.set(row, at);
    at += row.length;
  }
  return tokens;
}
