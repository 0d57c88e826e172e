const pageBytes = 16_384;
/** Unused pages that are kept for the next streams: touching new memory costs more than copying into it. */
export const keptPages = 1_024;

const unused: Buffer[] = [];

/** Unused pages at present. */
export const unusedPages = (): number => unused.length;

/** Bytes that are only added to, in pages: growing copies nothing, and a page serves one stream after the other. */
export class PagedBytes {
  size = 0;
  #pages: Buffer[] = [];
  /** Bytes in the last page. */
  #used = pageBytes;

  append(bytes: Buffer): void {
    for (let from = 0; from < bytes.length; ) {
      if (this.#used === pageBytes) {
        this.#pages.push(unused.pop() ?? Buffer.allocUnsafeSlow(pageBytes));
        this.#used = 0;
      }
      const copied = bytes.copy(this.#pages.at(-1)!, this.#used, from);
      this.#used += copied;
      from += copied;
    }
    this.size += bytes.length;
  }

  /** Returns a copy of the bytes and empties it. */
  take(): Buffer {
    const taken = Buffer.concat(this.#pages, this.size);
    this.clear();
    return taken;
  }

  /** Gives its pages back. */
  clear(): void {
    for (const page of this.#pages) if (unused.length < keptPages) unused.push(page);
    this.#pages = [];
    this.#used = pageBytes;
    this.size = 0;
  }
}
