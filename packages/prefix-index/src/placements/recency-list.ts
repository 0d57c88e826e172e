import { noSegment, type Segments } from "./segments.ts";

/** The segments of one tree in the order of last use. */
export class RecencyList {
  newest = noSegment;
  oldest = noSegment;
  readonly #segments: Segments;

  constructor(segments: Segments) {
    this.#segments = segments;
  }

  insertNewest(segment: number): void {
    this.insertNewerThan(this.newest, segment);
  }

  /** @param neighbour a listed segment, or `noSegment` when none is listed */
  insertNewerThan(neighbour: number, segment: number): void {
    const { newer, older } = this.#segments;
    const above = neighbour === noSegment ? noSegment : newer[neighbour]!;
    older[segment] = neighbour;
    newer[segment] = above;
    if (neighbour === noSegment) this.oldest = segment;
    else newer[neighbour] = segment;
    if (above === noSegment) this.newest = segment;
    else older[above] = segment;
  }

  remove(segment: number): void {
    const { newer, older } = this.#segments;
    const above = newer[segment]!;
    const below = older[segment]!;
    if (above === noSegment) this.newest = below;
    else older[above] = below;
    if (below === noSegment) this.oldest = above;
    else newer[below] = above;
  }
}
