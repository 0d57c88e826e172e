import { createSeededRandom } from "@espalier/core";
import type { ChatMessage, Prompt, TraceRequest } from "./trace-request.ts";

export interface PromptSynthesisOptions {
  /** Distinguishes the invented texts of runs whose trace names no blocks. Only the low 16 bits are used. */
  readonly seed: number;
}

/**
 * Gives the requests of a trace their prompts. A prompt in the trace is returned unchanged. Otherwise the text has one
 * word of three letters and a space per input token: about one token for real tokenizers, and exactly four bytes. A
 * block's text depends only on its id, so requests with common blocks at their beginning share that text. The rest is
 * unique to the request.
 *
 * A model's chat template adds its own tokens around the text (about 5 to 40). This shifts the engine's blocks against
 * the trace's, by the same amount in every request.
 */
export function createPromptSynthesizer({ seed }: PromptSynthesisOptions): (request: TraceRequest) => Prompt {
  const blocks = createBlockTextCache(maxCachedBlocks);
  return (request) => {
    const { inputTokens, blockTokens, blockIds = [], index, prompt } = request;
    if (prompt !== undefined) return prompt;
    const pieces: string[] = [];
    let left = inputTokens;
    for (const id of blockIds) {
      const wordCount = Math.min(blockTokens, left);
      pieces.push(blocks.text(id, wordCount));
      left -= wordCount;
    }
    if (left > 0) pieces.push(blockText(ownTextId({ seed, owner: index, part: 0 }), left));
    return pieces.join("");
  };
}

/** A prompt as chat messages: a text becomes one user message. */
export function toChatMessages(prompt: Prompt): readonly ChatMessage[] {
  return typeof prompt === "string" ? [{ role: "user", content: prompt }] : prompt;
}

/** Maximum block texts in the cache: 8 MiB at 512 words per block. */
export const maxCachedBlocks = 4_096;

/** An LRU cache of block texts. */
export interface BlockTextCache {
  readonly size: number;
  /** The same as `blockText`. */
  text(id: number, wordCount: number): string;
}

/** @param capacity texts to keep, at least 1 */
export function createBlockTextCache(capacity: number): BlockTextCache {
  /** In the order of their last use. */
  const texts = new Map<string, string>();
  return {
    get size() {
      return texts.size;
    },
    text(id, wordCount) {
      const key = `${id}:${wordCount}`;
      const kept = texts.get(key);
      if (kept !== undefined) {
        texts.delete(key);
        texts.set(key, kept);
        return kept;
      }
      const [oldest] = texts.keys();
      if (texts.size >= capacity) texts.delete(oldest!);
      const text = blockText(id, wordCount);
      texts.set(key, text);
      return text;
    },
  };
}

/** 256 common English words of three letters: one for each value of a byte. Such words are mostly one token in the vocabularies of real models. */
const words: readonly string[] = `
  act add age ago aid aim air all and any arc are arm art ash ask ate bad bag ban bar bat bay bed bee beg bet
  bid big bit bow box boy bud bug bus but buy cab can cap car cat cop cow cry cup cut dad dam day den dew did
  die dig dim dip dog dot dry due ear eat egg elk end era eve eye fan far fat fed fee few fig fin fit fix fly
  fog for fox fun fur gap gas get got gum guy gym had ham has hat hay hen her hid him hip his hit hop hot how
  hub hug hut ice ill ink inn ion its ivy jam jar jaw jet job jog joy key kid kin kit lab lad lag lap law lay
  led leg let lid lie lip log lot low mad man map mat may men met mix mom mud mug net new nod nor not now nut
  oak odd off oil old one our out owl own pad pan pat paw pay pen pet pie pig pin pit pop pot pro put rag ran
  rat raw ray red rib rid rim rip rod row rub rug run sad sat saw say sea see set she shy sip sit six sky son
  spy sum sun tag tan tap tax tea ten the tie tin tip toe ton too top toy try two use van vet via war was wax way
  web wet who why win wit won yes yet you zip zoo
`
  .trim()
  .split(/\s+/);

/** Words that spell the id, one byte each: enough for every safe integer. */
const idWords = 7;

/** The four bytes of each word as one number, in the byte order of the machine. */
const wordUnits = new Uint32Array(
  Uint8Array.from(words.join(" ").concat(" "), (letter) => letter.charCodeAt(0)).buffer,
);

/**
 * Text that depends only on `id`: `wordCount` words of four bytes each, including the space. The first seven spell the
 * id, lowest byte first, so texts with different ids differ (for ids below 256^n within the first n words). The other
 * words are drawn with the id as seed.
 *
 * @param id a safe integer, not negative
 */
export function blockText(id: number, wordCount: number): string {
  const units = new Uint32Array(wordCount);
  let left = id;
  const spelled = Math.min(idWords, wordCount);
  for (let place = 0; place < spelled; place++) {
    units[place] = wordUnits[left % 256]!;
    left = Math.floor(left / 256);
  }
  const random = createSeededRandom(id ^ Math.floor(id / 2 ** 32));
  for (let place = spelled; place < wordCount; place++) units[place] = wordUnits[random.integer(256)]!;
  return Buffer.from(units.buffer).toString("latin1");
}

/** Maximum owners (requests of a trace, or users) and parts (turns) with distinct ids. */
export const maxTextOwners = 2 ** 22;

/** Parts of one owner's text with distinct ids. */
export const maxTextParts = 2 ** 14;

/**
 * The id of a private text, above the ids of any trace's blocks (which count up from 0) and unique by seed,
 * owner and part.
 */
export function ownTextId(of: { readonly seed: number; readonly owner: number; readonly part: number }): number {
  const { seed, owner, part } = of;
  return 2 ** 52 + ((seed & 0xffff) * maxTextOwners + owner) * maxTextParts + part;
}

/** The first id in use: lower ids are special tokens and single bytes in most vocabularies. */
const firstId = 512;

const lettersInAlphabet = 26;

const firstLetter = "a".charCodeAt(0);

/** A word of three letters and a space. */
const wordLength = 4;

/**
 * The token ids of a synthesised text, one per word, as a tokenizer with these words in its vocabulary would give them.
 * They are below 18,088.
 *
 * @throws RangeError for a text with other words
 */
export function wordTokenIds(text: string): readonly number[] {
  const ids = new Array<number>(text.length / wordLength);
  const letter = (at: number): number => {
    const place = text.charCodeAt(at) - firstLetter;
    if (place >= 0 && place < lettersInAlphabet) return place;
    throw new RangeError("the text is not one of words of three letters with a space behind each");
  };
  for (let word = 0; word < ids.length; word++) {
    const at = word * wordLength;
    ids[word] = firstId + (letter(at) * lettersInAlphabet + letter(at + 1)) * lettersInAlphabet + letter(at + 2);
  }
  return ids;
}
