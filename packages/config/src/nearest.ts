/**
 * The candidate that a writer most likely meant: the one with the least edit distance, when that is no more than
 * half the length of the longer of the two. Case and separators do not count, so `maxBodyBytes` finds `max-body-bytes`.
 */
export function nearest(written: string, candidates: readonly string[]): string | undefined {
  const plain = simplify(written.slice(0, 100));
  let best: string | undefined;
  let bestDistance = Number.POSITIVE_INFINITY;
  for (const candidate of candidates) {
    const simple = simplify(candidate);
    const distance = editDistance(plain, simple);
    if (distance < bestDistance && distance <= Math.max(plain.length, simple.length) / 2) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

function simplify(text: string): string {
  return text.toLowerCase().replace(/[-_.]/g, "");
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
