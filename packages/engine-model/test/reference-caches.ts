/**
 * The two caches once more, slow and plain: lists are searched, nothing is counted twice, content is text. They serve
 * one request at a time, and each returns what it gave up, in order.
 */
interface ReferenceCache {
  /** Runs a request: `tokens` are its prompt and what it computes of its output, `prompt` the length of the prompt. */
  serve(tokens: readonly number[], prompt: number): { readonly cached: number; readonly evicted: string[][] };
}

/** The name of the block that ends before token `end`: everything up to there. */
export const nameOf = (tokens: readonly number[], end: number): string => tokens.slice(0, end).join(" ");

interface Block {
  content: string | undefined;
  /** Counts up with every block that gets content. */
  entered: number;
}

/** vLLM: a list of free blocks; what is freed without content goes to its front, the rest to its end, last block first. */
export function createReferencePool(blockCount: number, blockSize: number): ReferenceCache {
  let free: Block[] = Array.from({ length: blockCount }, () => ({ content: undefined, entered: 0 }));
  let entries = 0;
  return {
    serve(tokens, prompt) {
      const held: Block[] = [];
      const evicted: string[][] = [];
      for (let end = blockSize; end < prompt; end += blockSize) {
        const copies = free.filter(({ content }) => content === nameOf(tokens, end));
        if (copies.length === 0) break;
        // Of several copies the one that was entered first, however often it moved since.
        const oldest = copies.reduce((one, other) => (other.entered < one.entered ? other : one));
        held.push(oldest);
        free.splice(free.indexOf(oldest), 1);
      }
      const cached = held.length * blockSize;
      const take = (): void => {
        const block = free.shift()!;
        if (block.content !== undefined) evicted.push([block.content]);
        block.content = undefined;
        held.push(block);
      };
      while (held.length * blockSize < prompt) take();
      for (let computed = prompt; computed <= tokens.length; computed++) {
        if (held.length * blockSize < computed) take();
        for (let end = blockSize; end <= computed; end += blockSize) {
          const block = held[end / blockSize - 1]!;
          if (block.content === undefined) block.entered = entries++;
          block.content = nameOf(tokens, end);
        }
      }
      held.reverse();
      const empty = held.filter(({ content }) => content === undefined);
      free = [...empty, ...free, ...held.filter(({ content }) => content !== undefined)];
      return { cached, evicted };
    },
  };
}

interface Page {
  readonly name: string;
  /** The node that a page is in: pages of one node go together. */
  node: number;
}

/** SGLang: a list of pages, each in a numbered node; the node that no page hangs below and that is oldest goes first. */
export function createReferenceTree(blockCount: number, blockSize: number): ReferenceCache {
  return new ReferenceTree(blockCount, blockSize);
}

class ReferenceTree implements ReferenceCache {
  readonly #blockSize: number;
  readonly #pages = new Map<string, Page>();
  /** When each node was used last. */
  readonly #accessed = new Map<number, number>();
  #clock = 0;
  #nodes = 0;
  #free: number;
  /** Nodes that the request being served uses. */
  #locked = new Set<number>();
  #evicted: string[] = [];

  constructor(blockCount: number, blockSize: number) {
    this.#free = blockCount;
    this.#blockSize = blockSize;
  }

  serve(tokens: readonly number[], prompt: number): { cached: number; evicted: string[][] } {
    const size = this.#blockSize;
    const whole = (count: number): number => Math.floor(count / size) * size;
    this.#evicted = [];
    const path = this.#path(tokens, prompt - 1);
    this.#cut(path);
    this.#touch(path);
    this.#locked = new Set(path.map((page) => page.node));
    const cached = path.length * size;
    this.#makeRoom(Math.ceil((prompt - cached) / size) + 1);
    // Pages of its own, beside those of the tree.
    let own = Math.ceil(prompt / size) - path.length;
    let inTree = path.length;
    this.#free -= own;
    const enter = (limit: number): void => {
      const added = this.#insert(tokens, limit);
      // What it computed and others had entered before goes back.
      const copies = limit / size - inTree - added;
      own -= added + copies;
      this.#free += copies;
      inTree = limit / size;
      for (const page of this.#path(tokens, limit)) this.#locked.add(page.node);
    };
    if (tokens.length > prompt) enter(whole(prompt));
    for (let computed = prompt + 1; computed <= tokens.length; computed++) {
      this.#makeRoom(1);
      if (computed % size !== 1) continue;
      this.#free--;
      own++;
    }
    enter(whole(tokens.length));
    this.#touch(this.#path(tokens, whole(prompt)));
    this.#free += own;
    return { cached, evicted: [this.#evicted] };
  }

  #path(tokens: readonly number[], limit: number): Page[] {
    const path: Page[] = [];
    for (let end = this.#blockSize; end <= limit; end += this.#blockSize) {
      const page = this.#pages.get(nameOf(tokens, end));
      if (!page) break;
      path.push(page);
    }
    return path;
  }

  /** Parts the node in which a path ends, so that the path's pages have it to themselves. */
  #cut(path: readonly Page[]): void {
    const last = path.at(-1);
    if (!last) return;
    const inside = new Set(path.filter(({ node }) => node === last.node));
    const rest = [...this.#pages.values()].filter((page) => page.node === last.node && !inside.has(page));
    if (rest.length === 0) return;
    const upper = this.#nodes++;
    for (const page of inside) page.node = upper;
    this.#accessed.set(upper, ++this.#clock);
    this.#accessed.set(rest[0]!.node, ++this.#clock);
  }

  #touch(path: readonly Page[]): void {
    for (const node of new Set(path.map((page) => page.node))) this.#accessed.set(node, ++this.#clock);
  }

  /** Returns how many pages are new. */
  #insert(tokens: readonly number[], limit: number): number {
    const path = this.#path(tokens, limit);
    this.#touch(path);
    this.#cut(path);
    const node = this.#nodes++;
    for (let end = (path.length + 1) * this.#blockSize; end <= limit; end += this.#blockSize) {
      this.#pages.set(nameOf(tokens, end), { name: nameOf(tokens, end), node });
      this.#accessed.set(node, ++this.#clock);
    }
    return limit / this.#blockSize - path.length;
  }

  #makeRoom(wanted: number): void {
    while (this.#free < wanted) {
      const all = [...this.#pages.values()];
      const hangsBelow = (page: Page, node: number): boolean =>
        page.node !== node && all.some((own) => own.node === node && page.name.startsWith(`${own.name} `));
      const leaves = [...new Set(all.map((page) => page.node))].filter(
        (node) => !this.#locked.has(node) && !all.some((page) => hangsBelow(page, node)),
      );
      const oldest = leaves.sort((one, other) => this.#accessed.get(one)! - this.#accessed.get(other)!)[0];
      if (oldest === undefined) return;
      const own = all.filter((page) => page.node === oldest).sort((one, other) => one.name.length - other.name.length);
      for (const page of own) this.#pages.delete(page.name);
      this.#free += own.length;
      this.#evicted.push(...own.map(({ name }) => name));
    }
  }
}
