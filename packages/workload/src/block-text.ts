import { createSeededRandom } from "@espalier/common";
import { words } from "./words.ts";

/** Words that spell the id, a byte each: enough for every safe integer. */
const idWords = 7;

/** The four bytes of each word as one number, in the byte order of the machine. */
const wordUnits = new Uint32Array(
  Uint8Array.from(words.join(" ").concat(" "), (letter) => letter.charCodeAt(0)).buffer,
);

/**
 * Text that depends on `id` alone: `wordCount` words of four bytes each, space included. The first seven spell the id,
 * lowest byte first, so texts of different ids differ (for ids below 256^n within the first n words); the others are
 * drawn with the id as seed.
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
