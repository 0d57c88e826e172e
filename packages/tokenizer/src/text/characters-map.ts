import type { Normalizer } from "./normalizer.ts";
import type { TokenizerPart } from "./tokenizer-part.ts";

/** Longer grapheme clusters are looked up character by character only. */
const maxClusterBytes = 5;
/** Maps of models in use take 240 KB. */
const maxMapBytes = 16 * 1024 * 1024;

/**
 * The `Precompiled` normalizer: a table of rewritings from SentencePiece, as a double-array trie (Yata et al., "A
 * compact static double-array keeping character codes", 2007) over UTF-8, with the replacements behind it.
 *
 * @throws EspalierError `config_invalid`
 */
export function readCharactersMap(part: TokenizerPart): Normalizer {
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

/** How many characters' rewritings are kept. */
const maxRemembered = 4_096;
const plain = "\\x20-\\x7E\\u00C0-\\u024F\\u0400-\\u0481\\u048A-\\u052F\\u3041-\\u3096\\u30A1-\\u30FA\\u4E00-\\u9FFF";
/** Characters that may join with others into a grapheme cluster, with the plain one before them. */
const clusteringRuns = new RegExp(`[${plain}]?[^${plain}]+`, "gu");

const segmenter = new Intl.Segmenter("en", { granularity: "grapheme" });
const windowLength = 256;

/** Grapheme clusters of a text, by way of windows: the segmenter takes a step in a time that grows with its text. */
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
    // What ends with the window may go on behind it. When that is all there is, a wider window is needed.
    length = taken === start ? length * 2 : windowLength;
    start = taken;
  }
}

/** The value of the shortest key that `bytes` starts with, or -1. That it is the shortest is what the reference does. */
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
