/** The first id that is given: those below belong to special tokens and single bytes in most vocabularies. */
const firstId = 512;
const lettersInAlphabet = 26;
const firstLetter = "a".charCodeAt(0);
/** A word of three letters and the space behind it. */
const wordLength = 4;

/**
 * The token ids of a synthesised text, one for each of its words: what a tokenizer with these words in its vocabulary
 * would give. They are below 18,088.
 *
 * @throws RangeError for a text of other words
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
