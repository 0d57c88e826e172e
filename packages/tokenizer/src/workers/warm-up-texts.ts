import { createSeededRandom } from "@espalier/common";

const textCount = 2;
/** About 15,000 characters: what is left to make quick after that is little, and it takes a thread a tenth of a second. */
const wordsInText = 2_000;
const letters = "etaoinshrdlucmfwypvbgkjqxz";
const separators = [" ", " ", " ", " ", ", ", ". ", "\n", "\n\n", " (", ") ", ": ", " 42 ", " é", " 🙂 "];

/**
 * Texts on which a thread is made quick: of words that nobody uses, so that none is found in a cache, between what real
 * texts have between words. They are the same each time.
 */
export function warmUpTexts(): readonly string[] {
  const random = createSeededRandom(1);
  const word = (): string => {
    let made = "";
    for (let length = 2 + random.integer(8); length > 0; length--) {
      // The lower of two draws: letters in front are the frequent ones.
      made += letters[Math.min(random.integer(letters.length), random.integer(letters.length))];
    }
    return made + separators[random.integer(separators.length)];
  };
  return Array.from({ length: textCount }, () => Array.from({ length: wordsInText }, word).join(""));
}
