/** First id of the special tokens; the ids below it are single bytes. */
export const firstSpecialToken = 256;

/** Ids from here on are pieces of four bytes. */
export const firstPieceToken = 512;

/** What the chat template puts between texts, in order of id. */
const names = ["system", "user", "assistant", "tool", "tools", "documents", "unknown", "end"] as const;

export type SpecialToken = (typeof names)[number];

/** The id of each special token. */
export const specialTokenIds = Object.fromEntries(
  names.map((name, index) => [name, firstSpecialToken + index]),
) as Readonly<Record<SpecialToken, number>>;

/** How a special token shows in decoded text. Ids without a name show as numbers. */
export function specialTokenText(id: number): string {
  return `<|${names[id - firstSpecialToken] ?? id}|>`;
}
