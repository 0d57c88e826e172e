import { createSeededRandom, type Random } from "@espalier/core";

const syllables = "ta ke no mi ra sol ver ent ing ion al per con ter ous der lin mar qu ex str ble".split(" ");
const distinctWords = 20_000;
/** Every this many words, something that is not a word. */
const others = [
  "1,024",
  "3.14",
  "=> {",
  "();\n",
  "größer",
  "naïve",
  "https://example.org/a?b=1",
  "\n\n",
  "—",
  "好的",
  "🙂",
];

/** A source of text with few frequent and many rare words, as in languages (Zipf's law). */
export interface TextSource {
  /** At least `length` characters, and only slightly more. */
  text(length: number): string;
}

export function createTextSource(seed: number): TextSource {
  const random = createSeededRandom(seed);
  const words = Array.from({ length: distinctWords }, () => wordOf(random));
  return {
    text(length) {
      let text = "";
      while (text.length < length) {
        const rank = Math.floor(distinctWords ** random.float());
        text += random.integer(12) === 0 ? others[random.integer(others.length)] : words[rank];
        text += random.integer(9) === 0 ? ", " : random.integer(14) === 0 ? ". " : " ";
      }
      return text;
    },
  };
}

function wordOf(random: Random): string {
  let word = "";
  for (let count = 1 + random.integer(4); count > 0; count--) word += syllables[random.integer(syllables.length)]!;
  return random.integer(8) === 0 ? word.charAt(0).toUpperCase() + word.slice(1) : word;
}

/** One turn of a chat as its template renders it. */
export const renderedMessage = (role: string, content: string): string => `<|im_start|>${role}\n${content}<|im_end|>\n`;

/** The end of a rendered chat. */
export const opening = "<|im_start|>assistant\n";
