import { NodeMap } from "./node-map.ts";
import { NodeTable } from "./node-table.ts";

/** Most places compared for one run; content that occurs in more places identifies nothing. */
export const maxHintCandidates = 256;

/** Words of a place: digest (low, high), next and previous place of the same digest, request, position in it. */
const field = { digest: 0, next: 3, previous: 4, request: 5, position: 6 } as const;
const placeWords = 7;

export interface AttachHintsOptions {
  readonly maxRequests: number;
  /** Bound of blocks of all requests, at most 2^24 - 2. */
  readonly maxBlocks: number;
}

/** The chain hashes from the first block of a prompt, two words each, and their number. */
export interface ChainPath {
  readonly words: Uint32Array;
  readonly blocks: number;
}

interface HintedRequest {
  readonly contents: Uint32Array;
  readonly chain: Uint32Array;
  /** Its blocks in the table of places. */
  readonly places: Uint32Array;
}

/**
 * The contents of active requests, to recognize engine blocks whose parent is unknown: if a subtree continues as a
 * request does from some block on, its parent is the request's block before that.
 */
export class AttachHints {
  readonly #maxRequests: number;
  readonly #table: NodeTable;
  readonly #places: NodeMap;
  readonly #requests = new Map<string, number>();
  readonly #slots: (HintedRequest | undefined)[] = [];
  readonly #freeSlots: number[] = [];

  constructor({ maxRequests, maxBlocks }: AttachHintsOptions) {
    this.#maxRequests = maxRequests;
    this.#table = new NodeTable(placeWords, maxBlocks);
    this.#places = new NodeMap(this.#table, field.digest);
  }

  get requests(): number {
    return this.#requests.size;
  }

  get blocks(): number {
    return this.#table.live;
  }

  /**
   * Adds a request; replaces one with the same key.
   *
   * @param contents digests of its blocks, two words each
   * @param chain their chain hashes
   * @returns false if it does not fit: it is left out
   */
  add(key: string, contents: Uint32Array, chain: Uint32Array, blocks: number): boolean {
    this.remove(key);
    if (this.#requests.size >= this.#maxRequests || !this.#table.hasRoomFor(blocks)) return false;
    const slot = this.#freeSlots.pop() ?? this.#slots.length;
    const places = new Uint32Array(blocks);
    this.#requests.set(key, slot);
    this.#slots[slot] = { contents: contents.slice(0, 2 * blocks), chain: chain.slice(0, 2 * blocks), places };
    for (let block = 0; block < blocks; block++) {
      places[block] = this.#addPlace(contents[2 * block]!, contents[2 * block + 1]!, slot, block);
    }
    return true;
  }

  remove(key: string): void {
    const slot = this.#requests.get(key);
    if (slot === undefined) return;
    this.#requests.delete(key);
    for (const place of this.#slots[slot]!.places) this.#removePlace(place);
    this.#slots[slot] = undefined;
    this.#freeSlots.push(slot);
  }

  /**
   * Finds the position of a run of blocks: where a request continues as the run does, until one of them ends. Of
   * several places the one with the longest agreement counts.
   *
   * @param contents digests of the run's blocks, two words each
   * @returns the chain before the run (valid until the request is removed); undefined if there is none, or if the
   * places with the longest agreement have different chains before them
   */
  find(contents: Uint32Array, blocks: number): ChainPath | undefined {
    if (blocks === 0) return undefined;
    const { words } = this.#table;
    let best: ChainPath | undefined;
    let longest = 0;
    let isAmbiguous = false;
    let candidates = 0;
    let place = this.#places.find(contents[0]!, contents[1]!);
    for (; place !== 0; place = words[place * placeWords + field.next]!) {
      if (++candidates > maxHintCandidates) return undefined;
      const request = this.#slots[words[place * placeWords + field.request]!]!;
      const position = words[place * placeWords + field.position]!;
      const agreed = position === 0 ? 0 : agreement(request.contents, position, contents, blocks);
      if (agreed === 0 || agreed < longest) continue;
      if (agreed > longest) isAmbiguous = false;
      else if (best && !isSameEnd(best, request.chain, position)) isAmbiguous = true;
      longest = agreed;
      best = { words: request.chain, blocks: position };
    }
    return isAmbiguous ? undefined : best;
  }

  #addPlace(low: number, high: number, slot: number, position: number): number {
    const first = this.#places.find(low, high);
    const place = this.#table.allocate();
    const { words } = this.#table;
    const at = place * placeWords;
    words[at] = low;
    words[at + 1] = high;
    words[at + field.request] = slot;
    words[at + field.position] = position;
    if (first === 0) {
      this.#places.add(place);
      return place;
    }
    // The map has the first place of a digest; others are linked behind it.
    const second = words[first * placeWords + field.next]!;
    words[at + field.next] = second;
    words[at + field.previous] = first;
    if (second !== 0) words[second * placeWords + field.previous] = place;
    words[first * placeWords + field.next] = place;
    return place;
  }

  #removePlace(place: number): void {
    const { words } = this.#table;
    const at = place * placeWords;
    const next = words[at + field.next]!;
    const previous = words[at + field.previous]!;
    if (next !== 0) words[next * placeWords + field.previous] = previous;
    if (previous !== 0) words[previous * placeWords + field.next] = next;
    else {
      this.#places.remove(place);
      if (next !== 0) this.#places.add(next);
    }
    this.#table.release(place);
  }
}

/**
 * Number of blocks in which a request from `position` and a run agree; 0 unless they agree to the end of one of them.
 */
function agreement(request: Uint32Array, position: number, run: Uint32Array, runBlocks: number): number {
  const blocks = Math.min(runBlocks, request.length / 2 - position);
  for (let word = 0; word < 2 * blocks; word++) {
    if (request[2 * position + word] !== run[word]) return 0;
  }
  return blocks;
}

const isSameEnd = (path: ChainPath, chain: Uint32Array, blocks: number): boolean =>
  path.words[2 * path.blocks - 2] === chain[2 * blocks - 2] &&
  path.words[2 * path.blocks - 1] === chain[2 * blocks - 1];
