/** Maximum letters compared. More would cost time, and no name is as long. */
const maxCompared = 100;

/**
 * The name that was most likely meant: the one with the smallest edit distance, if that is at most half the length of the
 * longer of the two. Case and separators are ignored, so `maxBodyBytes` finds `max-body-bytes`.
 *
 * @returns undefined if none is close
 */
export function nearestName(written: string, names: readonly string[]): string | undefined {
  const plain = simplify(written);
  let best: string | undefined;
  let bestDistance = Number.POSITIVE_INFINITY;
  for (const name of names) {
    const simple = simplify(name);
    const distance = editDistance(plain, simple);
    if (distance < bestDistance && distance <= Math.max(plain.length, simple.length) / 2) {
      best = name;
      bestDistance = distance;
    }
  }
  return best;
}

/** Commands, keys and flags that have been renamed, with their names of today. */
const renamed: ReadonlyMap<string, string> = new Map([
  ["patience", "max-cold-wait"],
  ["between", "class-scheduling"],
  ["workers", "engines"],
]);

/** The name of today, if `names` has it, of what was renamed. */
export function renamedTo(written: string, names: readonly string[]): string | undefined {
  const now = renamed.get(written);
  return now !== undefined && names.includes(now) ? now : undefined;
}

/** The end of a message about an unknown name: `; it is named NAME now`, `; did you mean NAME?`, or empty when none is close. */
export function didYouMean(written: string, names: readonly string[]): string {
  const now = renamedTo(written, names);
  if (now !== undefined) return `; renamed to ${now}`;
  const meant = nearestName(written, names);
  return meant === undefined ? "" : `; did you mean ${meant}?`;
}

function simplify(text: string): string {
  return text.slice(0, maxCompared).toLowerCase().replace(/[-_.]/g, "");
}

/** Levenshtein, "Binary codes capable of correcting deletions, insertions and reversals" (1966), one row at a time. */
function editDistance(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, at) => at);
  for (let i = 1; i <= one.length; i++) {
    const next = [i];
    for (let j = 1; j <= other.length; j++) {
      const substituted = row[j - 1]! + (one[i - 1] === other[j - 1] ? 0 : 1);
      next.push(Math.min(substituted, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  return row[other.length]!;
}
