const wordBytes = 4;

/**
 * Words that grow in place: the address space for the maximum is reserved at once, and memory is allocated when it is
 * first written. Growing copies nothing. It replaces `words`, which has a fixed length, so access is as fast as to a
 * plain array.
 */
export class GrowableWords {
  words: Uint32Array;
  /** The same memory as 64-bit floats. */
  floats: Float64Array;
  readonly maxWords: number;
  readonly #buffer: SharedArrayBuffer;

  constructor(maxWords: number, initialWords: number) {
    this.maxWords = maxWords;
    const byteLength = Math.min(initialWords, maxWords) * wordBytes;
    this.#buffer = new SharedArrayBuffer(byteLength, { maxByteLength: maxWords * wordBytes });
    this.words = new Uint32Array(this.#buffer, 0, byteLength / wordBytes);
    this.floats = new Float64Array(this.#buffer, 0, this.words.length >> 1);
  }

  /**
   * Ensures at least `count` words; new ones are zero.
   *
   * @returns false if that is beyond the maximum, and nothing changed
   */
  ensure(count: number): boolean {
    if (count <= this.words.length) return true;
    if (count > this.maxWords) return false;
    this.#buffer.grow(Math.max(count * wordBytes, this.#buffer.byteLength));
    this.words = new Uint32Array(this.#buffer, 0, count);
    this.floats = new Float64Array(this.#buffer, 0, count >> 1);
    return true;
  }
}

const pageWords = 4_096;
const pageShift = 12;

/** Sizes in words that records are rounded up to: at most a third of a record of three words or more is idle. */
const sizeClasses = [
  2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024, 1_536, 2_048,
] as const;

/** The longest record in a pool. */
export const maxRecordWords = 2_048;

/** The class of a record of w words is at index (w + 1) >> 1. */
const classOfSize = new Uint8Array((maxRecordWords >> 1) + 1);
for (let pairs = 0, index = 0; pairs < classOfSize.length; pairs++) {
  while (sizeClasses[index]! < pairs * 2) index++;
  classOfSize[pairs] = index;
}

/** Means "no page" and "no record": it is above every offset. */
const none = 0xffff_ffff;

/**
 * Records of 1 to 2,048 words in pages of 4,096, each page for one size. An empty page serves any size again, so freed
 * memory is always reusable, and the pool is never larger than its peak use.
 */
export class WordPool {
  /** Words in allocated records, rounded up to their sizes. */
  usedWords = 0;
  readonly #memory: GrowableWords;
  #pages = 0;
  #freePage = none;
  /** Four words per page: class, allocated records, first free record, records ever allocated. */
  readonly #pageState: GrowableWords;
  /** Two words per page: the next and the previous page of the same class with free space. */
  readonly #pageLinks: GrowableWords;
  /** By class, the first page with free space. */
  readonly #roomy = new Uint32Array(sizeClasses.length).fill(none);

  /** @param maxWords bound on all records, rounded up to their sizes; each size may have one page that is not full */
  constructor(maxWords: number) {
    const maxPages = Math.ceil(maxWords / pageWords) + sizeClasses.length;
    this.#memory = new GrowableWords(maxPages * pageWords, 0);
    this.#pageState = new GrowableWords(maxPages * 4, 0);
    this.#pageLinks = new GrowableWords(maxPages * 2, 0);
  }

  /** The memory that offsets refer to. Growing replaces it: read it after `allocate`, and do not keep it. */
  get words(): Uint32Array {
    return this.#memory.words;
  }

  get byteLength(): number {
    return (this.#memory.words.length + this.#pageState.words.length + this.#pageLinks.words.length) * 4;
  }

  /** @returns the offset of a record with undefined content, or -1 if the pool is full */
  allocate(words: number): number {
    const sizeClass = classOfSize[(words + 1) >> 1]!;
    let page = this.#roomy[sizeClass]!;
    if (page === none) {
      page = this.#takePage(sizeClass);
      if (page === none) return -1;
    }
    const size = sizeClasses[sizeClass]!;
    const state = this.#pageState.words;
    const memory = this.#memory.words;
    const first = state[page * 4 + 2]!;
    let offset = first;
    if (first === none) offset = (page << pageShift) + size * state[page * 4 + 3]!++;
    else state[page * 4 + 2] = memory[first]!;
    this.usedWords += size;
    if (++state[page * 4 + 1]! === Math.floor(pageWords / size)) this.#unlink(page, sizeClass);
    return offset;
  }

  /** @param offset a result of `allocate`; the record must not be used any more */
  free(offset: number): void {
    const page = offset >>> pageShift;
    const state = this.#pageState.words;
    const sizeClass = state[page * 4]!;
    const size = sizeClasses[sizeClass]!;
    this.#memory.words[offset] = state[page * 4 + 2]!;
    state[page * 4 + 2] = offset;
    this.usedWords -= size;
    const taken = state[page * 4 + 1]!--;
    if (taken === Math.floor(pageWords / size)) this.#link(page, sizeClass);
    if (taken > 1) return;
    this.#unlink(page, sizeClass);
    this.#pageLinks.words[page * 2] = this.#freePage;
    this.#freePage = page;
  }

  /** The capacity in words of the record at an offset. */
  roomAt(offset: number): number {
    return sizeClasses[this.#pageState.words[(offset >>> pageShift) * 4]!]!;
  }

  #takePage(sizeClass: number): number {
    let page = this.#freePage;
    if (page !== none) this.#freePage = this.#pageLinks.words[page * 2]!;
    else {
      page = this.#pages;
      if (!this.#memory.ensure((page + 1) * pageWords)) return none;
      this.#pageState.ensure((page + 1) * 4);
      this.#pageLinks.ensure((page + 1) * 2);
      this.#pages++;
    }
    this.#pageState.words.set([sizeClass, 0, none, 0], page * 4);
    this.#link(page, sizeClass);
    return page;
  }

  #link(page: number, sizeClass: number): void {
    const links = this.#pageLinks.words;
    const next = this.#roomy[sizeClass]!;
    links[page * 2] = next;
    links[page * 2 + 1] = none;
    if (next !== none) links[next * 2 + 1] = page;
    this.#roomy[sizeClass] = page;
  }

  #unlink(page: number, sizeClass: number): void {
    const links = this.#pageLinks.words;
    const next = links[page * 2]!;
    const previous = links[page * 2 + 1]!;
    if (next !== none) links[next * 2 + 1] = previous;
    if (previous !== none) links[previous * 2] = next;
    else this.#roomy[sizeClass] = next;
  }
}
