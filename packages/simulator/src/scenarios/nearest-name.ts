/** Longer names are not compared with anything. */
const maxNameLength = 100;

/** The name that is the fewest edits away, when those are at most half of the longer one's letters. */
export function nearestName(written: string, names: readonly string[]): string | undefined {
  let nearest: string | undefined;
  let least = Number.POSITIVE_INFINITY;
  if (written.length > maxNameLength) return undefined;
  for (const name of names) {
    const edits = editsBetween(written.toLowerCase(), name);
    if (edits >= least || edits > Math.max(written.length, name.length) / 2) continue;
    nearest = name;
    least = edits;
  }
  return nearest;
}

/** Insertions, removals and replacements of letters (Levenshtein). */
function editsBetween(one: string, other: string): number {
  const width = other.length + 1;
  const edits = Uint16Array.from({ length: (one.length + 1) * width }, (_, at) => (at < width ? at : at / width));
  for (let row = 1; row <= one.length; row++) {
    for (let column = 1; column < width; column++) {
      const at = row * width + column;
      const replaced = edits[at - width - 1]! + (one[row - 1] === other[column - 1] ? 0 : 1);
      edits[at] = Math.min(replaced, edits[at - width]! + 1, edits[at - 1]! + 1);
    }
  }
  return edits.at(-1)!;
}
