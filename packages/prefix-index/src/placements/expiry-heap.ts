import { noSegment, type Segments } from "./segments.ts";

const minPlaces = 8;

/**
 * The segments of one tree by the time at which they expire. A segment whose expiry moves away stays where it is filed
 * until it comes to the top, so that a use of a segment costs nothing here.
 */
export class ExpiryHeap {
  readonly #segments: Segments;
  #places = new Uint32Array(minPlaces);
  #count = 0;

  constructor(segments: Segments) {
    this.#segments = segments;
  }

  get byteLength(): number {
    return this.#places.byteLength;
  }

  add(segment: number): void {
    if (this.#count === this.#places.length) this.#resize(this.#count * 2);
    this.#segments.filedMs[segment] = this.#segments.expiryMs[segment]!;
    this.#rise(this.#count++, segment);
  }

  remove(segment: number): void {
    const place = this.#segments.heapPlace[segment]!;
    const last = this.#places[--this.#count]!;
    if (last !== segment) {
      this.#sink(place, last);
      if (this.#places[place] === last) this.#rise(place, last);
    }
    if (this.#places.length > minPlaces && this.#count * 4 < this.#places.length) this.#resize(this.#places.length / 2);
  }

  /** @returns a segment that has expired, or `noSegment` */
  expiredAt(nowMs: number): number {
    const { filedMs, expiryMs } = this.#segments;
    while (this.#count > 0) {
      const segment = this.#places[0]!;
      if (filedMs[segment]! > nowMs) return noSegment;
      if (expiryMs[segment]! <= nowMs) return segment;
      filedMs[segment] = expiryMs[segment]!;
      this.#sink(0, segment);
    }
    return noSegment;
  }

  #rise(from: number, segment: number): void {
    const { filedMs, heapPlace } = this.#segments;
    const places = this.#places;
    let place = from;
    while (place > 0) {
      const above = (place - 1) >>> 1;
      if (filedMs[places[above]!]! <= filedMs[segment]!) break;
      places[place] = places[above]!;
      heapPlace[places[place]!] = place;
      place = above;
    }
    places[place] = segment;
    heapPlace[segment] = place;
  }

  #sink(from: number, segment: number): void {
    const { filedMs, heapPlace } = this.#segments;
    const places = this.#places;
    let place = from;
    for (;;) {
      let below = place * 2 + 1;
      if (below >= this.#count) break;
      if (below + 1 < this.#count && filedMs[places[below + 1]!]! < filedMs[places[below]!]!) below++;
      if (filedMs[places[below]!]! >= filedMs[segment]!) break;
      places[place] = places[below]!;
      heapPlace[places[place]!] = place;
      place = below;
    }
    places[place] = segment;
    heapPlace[segment] = place;
  }

  #resize(length: number): void {
    const places = new Uint32Array(length);
    places.set(this.#places.subarray(0, this.#count));
    this.#places = places;
  }
}
