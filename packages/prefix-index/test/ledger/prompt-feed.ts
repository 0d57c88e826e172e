import { type LedgerReport, type LedgerStats, tierNames } from "@espalier/prefix-index";
import { FeedLedger, type LedgerLimits } from "../../src/ledger/feed-ledger.ts";
import { batchOf, chainOf, FoldingSink, hashAt, type TestEvent, testDigests } from "./helpers.ts";

const tokensPerUnit = 2;

export interface PromptFeedOptions {
  /** Letters of an engine block, and of a router block. */
  readonly engineUnits?: number;
  readonly routerUnits?: number;
  readonly limits?: Partial<LedgerLimits>;
}

/** What else there is to a prompt. The namespace changes the engine's hashes, and does not show in its events. */
export interface PromptOptions {
  readonly adapter?: string;
  readonly cacheSalt?: string;
  readonly namespace?: string;
  readonly tier?: number;
  readonly group?: number;
}

/**
 * The feed of an engine whose prompts are written as words. A letter is two tokens; a capital is the same tokens with a
 * key beside them. Blocks are called by the prompt up to their end, both the engine's (whose hashes depend on that, as in
 * real engines) and the router's, so that what the sink was told can be read. With an adapter or a salt the name begins
 * with them: `lora:ab`, `/salt:ab`.
 */
export class PromptFeed {
  readonly sink = new FoldingSink();
  readonly ledger: FeedLedger;
  readonly engineUnits: number;
  readonly routerUnits: number;
  readonly #names = new Map<bigint, string>();

  constructor({ engineUnits = 1, routerUnits = 1, limits = {} }: PromptFeedOptions = {}) {
    this.engineUnits = engineUnits;
    this.routerUnits = routerUnits;
    const blockSize = routerUnits * tokensPerUnit;
    this.ledger = new FeedLedger({ blockSize, digests: testDigests, sink: this.sink, limits });
  }

  get stats(): LedgerStats {
    return this.ledger.stats();
  }

  apply(...events: readonly TestEvent[]): LedgerReport {
    return { ...this.ledger.apply(batchOf(...events)) };
  }

  /** Stores the blocks after the bar, `ab|cd`, below those before it; without a bar all, from the first. */
  stored(prompt: string, options: PromptOptions = {}): TestEvent {
    const bar = Math.max(0, prompt.indexOf("|"));
    const text = prompt.replace("|", "");
    this.#learn(text, options);
    const run = text.slice(bar);
    const blocks = run.length / this.engineUnits;
    const { adapter, cacheSalt, tier, group } = options;
    return {
      kind: "stored",
      hashes: Array.from({ length: blocks }, (_, block) =>
        engineHash(text.slice(0, bar + (block + 1) * this.engineUnits), options),
      ),
      parent: bar === 0 ? undefined : engineHash(text.slice(0, bar), options),
      tokens: tokensOf(run),
      blockSize: this.engineUnits * tokensPerUnit,
      ...(tier === undefined ? {} : { tier }),
      ...(group === undefined ? {} : { group }),
      detail: { adapter, cacheSalt, blockKeys: this.#keysOf(run, blocks) },
    };
  }

  /** Says that blocks are in a tier, without their tokens. */
  moved(tier: number, ...prefixes: readonly string[]): TestEvent {
    return { kind: "stored", hashes: prefixes.map((prefix) => engineHash(prefix, {})), tokens: [], tier };
  }

  removed(...prefixes: readonly string[]): TestEvent {
    return this.removedAs({}, ...prefixes);
  }

  removedAs(options: PromptOptions, ...prefixes: readonly string[]): TestEvent {
    const { tier, group } = options;
    return {
      kind: "removed",
      hashes: prefixes.map((prefix) => engineHash(prefix, options)),
      ...(tier === undefined ? {} : { tier }),
      ...(group === undefined ? {} : { group }),
    };
  }

  /** The router's blocks in a tier, by name. */
  held(tier = 0): string[] {
    return Array.from(this.sink.blocks[tier]!, (hash) => this.nameOf(hash)).sort();
  }

  /** The holes in a tier, with their depths. */
  holes(tier = 0): Record<string, number> {
    return Object.fromEntries(Array.from(this.sink.holes[tier]!, ([hash, depth]) => [this.nameOf(hash), depth]));
  }

  nameOf(hash: bigint): string {
    return this.#names.get(hash) ?? `unknown ${hash}`;
  }

  /** Blocks per tier and holes as the sink was told, which is what `stats` has to say. */
  reported(): { blocks: readonly number[]; holes: number } {
    return {
      blocks: tierNames.map((_, tier) => this.sink.blocks[tier]!.size),
      holes: this.sink.holes.reduce((sum, holes) => sum + holes.size, 0),
    };
  }

  /** The chain hashes of a prompt. */
  chain(text: string, options: PromptOptions = {}): bigint[] {
    const { adapter, cacheSalt } = options;
    const blockSize = this.routerUnits * tokensPerUnit;
    const root = testDigests.root(adapter, cacheSalt);
    if (text === text.toLowerCase()) return chainOf(tokensOf(text), blockSize, root);
    const blocks = Math.floor(text.length / this.routerUnits);
    const contents = new Uint32Array(2 * blocks);
    testDigests.contents(Uint32Array.from(tokensOf(text)), 0, blocks * blockSize, blockSize, contents);
    for (let block = 0; block < blocks; block++) {
      const unit = Math.floor((block * this.routerUnits) / this.engineUnits) * this.engineUnits;
      const key = keyOf(text.slice(unit, unit + this.engineUnits));
      if (key !== undefined) testDigests.keyed(contents, block, key);
    }
    const chain = new Uint32Array(2 * blocks);
    testDigests.mix(root, contents, 0, blocks, chain);
    return Array.from({ length: blocks }, (_, block) => hashAt(chain, block));
  }

  #learn(text: string, options: PromptOptions): void {
    for (const [block, hash] of this.chain(text, options).entries()) {
      this.#names.set(hash, rootName(options) + text.slice(0, (block + 1) * this.routerUnits));
    }
  }

  #keysOf(run: string, blocks: number): (string | undefined)[] | undefined {
    if (run === run.toLowerCase()) return undefined;
    return Array.from({ length: blocks }, (_, block) =>
      keyOf(run.slice(block * this.engineUnits, (block + 1) * this.engineUnits)),
    );
  }
}

const tokensOf = (text: string): number[] =>
  Array.from(text.toLowerCase()).flatMap((letter) => [letter.charCodeAt(0), 1_000 + letter.charCodeAt(0)]);

/** The key of a block: its capitals. */
function keyOf(block: string): string | undefined {
  const capitals = block.replace(/[^A-Z]/g, "");
  return capitals === "" ? undefined : `image ${capitals}`;
}

function rootName({ adapter, cacheSalt }: PromptOptions): string {
  if (adapter === undefined && cacheSalt === undefined) return "";
  return `${adapter ?? ""}${cacheSalt === undefined ? "" : `/${cacheSalt}`}:`;
}

/** An engine's hash of a prompt up to the end of a block: FNV-1a, 64 bits. */
function engineHash(prefix: string, options: PromptOptions): bigint {
  const text = `${options.namespace ?? ""}|${rootName(options)}|${prefix}`;
  let hash = 0xcbf29ce484222325n;
  for (let at = 0; at < text.length; at++) {
    hash = ((hash ^ BigInt(text.charCodeAt(at))) * 0x100000001b3n) & 0xffff_ffff_ffff_ffffn;
  }
  return hash;
}
