import { parentPort } from "node:worker_threads";
import { createTextTokenizer, type TextTokenizer } from "../text/text-tokenizer.ts";
import { loadTokenizerFiles } from "../tokenizer-files.ts";

/** A pool's request to a thread. */
interface TokenizeRequest {
  readonly id: number;
  /** The folder of the model's files; a thread reads it once. */
  readonly folder: string;
  readonly texts: readonly string[];
  /** Whether the first of the texts starts a prompt. */
  readonly startsPrompt: boolean;
}

export interface TokenizeResult {
  /** The tokens of all texts, concatenated. */
  readonly tokens: Uint32Array;
  /** Number of tokens of each text. */
  readonly counts: readonly number[];
}

/** A thread's answer. */
type TokenizeResponse = { readonly id: number } & (TokenizeResult | { readonly error: string });

// The program of a thread: tokenizes what its pool sends, one request at a time.

/** Most models of one router. A new one beyond it replaces the oldest. */
const maxTokenizers = 16;
const tokenizers = new Map<string, Promise<TextTokenizer>>();

function tokenizerOf(folder: string): Promise<TextTokenizer> {
  const known = tokenizers.get(folder);
  if (known) return known;
  for (const oldest of tokenizers.keys()) {
    if (tokenizers.size < maxTokenizers) break;
    tokenizers.delete(oldest);
  }
  const loading = loadTokenizerFiles(folder).then(createTextTokenizer);
  tokenizers.set(folder, loading);
  // Files that could not be read may be readable next time.
  loading.catch(() => tokenizers.delete(folder));
  return loading;
}

async function answer({ id, folder, texts, startsPrompt }: TokenizeRequest): Promise<TokenizeResponse> {
  try {
    const tokenizer = await tokenizerOf(folder);
    const rows = texts.map((text, index) => tokenizer.encodePiece(text, startsPrompt && index === 0));
    const counts = rows.map((row) => row.length);
    const tokens = new Uint32Array(counts.reduce((sum, count) => sum + count, 0));
    let at = 0;
    for (const row of rows) {
      tokens.set(row, at);
      at += row.length;
    }
    return { id, tokens, counts };
  } catch (error) {
    return { id, error: error instanceof Error ? error.message : String(error) };
  }
}

parentPort?.on("message", async (request: TokenizeRequest) => {
  const response = await answer(request);
  parentPort?.postMessage(response, "tokens" in response ? [response.tokens.buffer as ArrayBuffer] : []);
});
