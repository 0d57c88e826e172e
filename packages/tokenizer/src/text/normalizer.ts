import { readPattern } from "./split-pattern.ts";
import { type TokenizerPart, tokenizerPart } from "./tokenizer-part.ts";
import { isWhiteSpace, normalizeAsReference } from "./unicode.ts";

/** Rewrites a run of text without added tokens. */
type Normalizer = (text: string) => string;

/**
 * The `normalizer` of a tokenizer.json.
 *
 * @returns undefined when there is none
 * @throws EspalierError `config_invalid`
 */
export function readNormalizer(value: unknown): Normalizer | undefined {
  if (value === null || value === undefined) return undefined;
  return normalizerOf(tokenizerPart(value, "normalizer"));
}

function normalizerOf(part: TokenizerPart): Normalizer {
  switch (part.type) {
    case "Sequence": {
      const steps = part.parts("normalizers").map(normalizerOf);
      return (text) => steps.reduce((rewritten, step) => step(rewritten), text);
    }
    case "NFC":
    case "NFD":
    case "NFKC":
    case "NFKD": {
      const form = part.type;
      return (text) => normalizeAsReference(text, form);
    }
    case "Replace": {
      const pattern = readPattern(part);
      const content = part.text("content");
      return (text) => pattern.replace(text, content);
    }
    case "Prepend": {
      const prepended = part.text("prepend");
      return (text) => (text === "" ? text : prepended + text);
    }
    case "Strip": {
      const [left, right] = [part.flag("strip_left", true), part.flag("strip_right", true)];
      return (text) => strip(text, left, right);
    }
    case "Lowercase":
      // The reference lowers one character at a time, so a final sigma gets no special treatment.
      return (text) =>
        text
          .split("Σ")
          .map((run) => run.toLowerCase())
          .join("σ");
    case "Nmt":
      return (text) => text.replace(nmtRemoved, "").replace(nmtSpaces, " ");
    case "Precompiled":
      return readCharactersMap(part);
    default:
      throw part.wrong(`is a ${part.type || "part without a type"}, which is not supported`);
  }
}

/** Tables of SentencePiece's NMT rules, as in the reference. */
const nmtRemoved = /[\u0001-\u0008\u000B\u000E-\u001F\u007F\u008F\u009F]/g;
const nmtSpaces = /[\t\n\f\r\u1680\u200B-\u200F\u2028\u2029\u2581\uFEFF\uFFFD]/g;

function strip(text: string, left: boolean, right: boolean): string {
  let start = 0;
  let end = text.length;
  while (left && start < end && isWhiteSpace(text.charCodeAt(start))) start++;
  while (right && end > start && isWhiteSpace(text.charCodeAt(end - 1))) end--;
  return text.slice(start, end);
}

/** Longer grapheme clusters are looked up only character by character. */
const maxClusterBytes = 5;
/** Maps of models in use take 240 KB. */
const maxMapBytes = 16 * 1024 * 1024;

/**
 * The `Precompiled` normalizer: a rewriting table from SentencePiece, as a double-array trie (Yata et al., "A compact
 * static double-array keeping character codes", 2007) over UTF-8, followed by the replacements.
 *
 * @throws EspalierError `config_invalid`
 */
function readCharactersMap(part: TokenizerPart): Normalizer {
  const bytes = Buffer.from(part.text("precompiled_charsmap"), "base64");
  const trieBytes = bytes.length >= 4 ? bytes.readUInt32LE(0) : -1;
  if (trieBytes < 4 || trieBytes % 4 !== 0 || 4 + trieBytes > bytes.length || bytes.length > maxMapBytes) {
    throw part.wrong("has a precompiled_charsmap that is cut short or malformed");
  }
  const units = new Uint32Array(trieBytes / 4);
  for (let index = 0; index < units.length; index++) units[index] = bytes.readUInt32LE(4 + index * 4);
  const replacements = bytes.subarray(4 + trieBytes);
  const rewrite = (chunk: string): string | undefined => {
    const at = firstMatch(units, Buffer.from(chunk));
    if (at < 0 || at > replacements.length) return undefined;
    const end = replacements.indexOf(0, at);
    return replacements.toString("utf8", at, end < 0 ? replacements.length : end);
  };
  const remembered = new Map<string, string | undefined>();
  const rewriteCharacter = (character: string): string => {
    if (!remembered.has(character) && remembered.size < maxRemembered) remembered.set(character, rewrite(character));
    return (remembered.has(character) ? remembered.get(character) : rewrite(character)) ?? character;
  };
  const rewriteCluster = (cluster: string): string => {
    const whole = Buffer.byteLength(cluster) <= maxClusterBytes ? rewrite(cluster) : undefined;
    return whole ?? Array.from(cluster, rewriteCharacter).join("");
  };
  return (text) => {
    let rewritten = "";
    let at = 0;
    for (const { index, 0: run } of text.matchAll(clusteringRuns)) {
      for (const character of text.slice(at, index)) rewritten += rewriteCharacter(character);
      for (const cluster of clustersOf(run)) rewritten += rewriteCluster(cluster);
      at = index + run.length;
    }
    for (const character of text.slice(at)) rewritten += rewriteCharacter(character);
    return rewritten;
  };
}

/** Most characters whose rewritings are cached. */
const maxRemembered = 4_096;
const plain = "\\x20-\\x7E\\u00C0-\\u024F\\u0400-\\u0481\\u048A-\\u052F\\u3041-\\u3096\\u30A1-\\u30FA\\u4E00-\\u9FFF";
/** Characters that may join others in a grapheme cluster, with the plain one before them. */
const clusteringRuns = new RegExp(`[${plain}]?[^${plain}]+`, "gu");

const segmenter = new Intl.Segmenter("en", { granularity: "grapheme" });
const windowLength = 256;

/** Grapheme clusters of a text, window by window: each step of the segmenter takes time proportional to its text. */
function* clustersOf(text: string): Generator<string> {
  let length = windowLength;
  for (let start = 0; start < text.length; ) {
    const isEnd = start + length >= text.length;
    let pending: string | undefined;
    let taken = start;
    for (const { segment } of segmenter.segment(text.slice(start, start + length))) {
      if (pending !== undefined) {
        yield pending;
        taken += pending.length;
      }
      pending = segment;
    }
    if (isEnd && pending !== undefined) {
      yield pending;
      return;
    }
    // The last cluster of a window may continue in the next one. If it fills the window, the window is widened.
    length = taken === start ? length * 2 : windowLength;
    start = taken;
  }
}

/** The value of the shortest key that `bytes` starts with, or -1. The reference takes the shortest too. */
function firstMatch(units: Uint32Array, bytes: Uint8Array): number {
  let unit = units[0]!;
  let node = offsetOf(unit);
  for (const byte of bytes) {
    if (byte === 0) return -1;
    node ^= byte;
    if (node >= units.length) return -1;
    unit = units[node]!;
    if ((unit & 0x8000_00ff) !== byte) return -1;
    node ^= offsetOf(unit);
    if (node >= units.length) return -1;
    if ((unit >>> 8) & 1) return units[node]! & 0x7fff_ffff;
  }
  return -1;
}

const offsetOf = (unit: number): number => (unit >>> 10) << ((unit & 0x200) >>> 6);
