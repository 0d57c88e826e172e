import type { BatchMark } from "../facts/life.ts";

/** Messages whose marks are remembered, to tell lives apart. */
export const maxKnownMarks = 4_096;

/** The marks of the latest messages of one run of an engine, by their numbers, which ascend. */
export class MarkHistory {
  /** The first one of all, which is not forgotten. */
  earliest: BatchMark | undefined;
  newest: BatchMark | undefined;
  readonly #sequences = new Float64Array(maxKnownMarks).fill(-1);
  readonly #timestamps = new Float64Array(maxKnownMarks);
  readonly #checksums = new Uint32Array(maxKnownMarks);

  add({ sequence, timestampUs, checksum }: BatchMark): void {
    const at = sequence % maxKnownMarks;
    this.#sequences[at] = sequence;
    this.#timestamps[at] = timestampUs;
    this.#checksums[at] = checksum;
    this.newest = { sequence, timestampUs, checksum };
    this.earliest ??= this.newest;
  }

  /** Whether the message with this number is remembered, and is this one. */
  compare(mark: BatchMark): "equal" | "different" | "not-known" {
    const { earliest } = this;
    if (earliest?.sequence === mark.sequence) return isSameMessage(earliest, mark) ? "equal" : "different";
    const at = mark.sequence % maxKnownMarks;
    if (this.#sequences[at] !== mark.sequence) return "not-known";
    const isEqual = this.#timestamps[at] === mark.timestampUs && this.#checksums[at] === mark.checksum;
    return isEqual ? "equal" : "different";
  }
}

/** Whether two marks are of the same message of the same life. */
export function isSameMessage(one: BatchMark, other: BatchMark): boolean {
  if (one === other) return true;
  const isSame = one.sequence === other.sequence && one.checksum === other.checksum;
  return isSame && one.timestampUs === other.timestampUs;
}
