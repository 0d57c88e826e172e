import type { Random } from "@espalier/core";
import type { LedgerReport } from "@espalier/prefix-index";
import type { TestEvent } from "./helpers.ts";
import type { NaiveBlock, NaiveLedger } from "./naive-ledger.ts";

export interface HistoryOptions {
  readonly random: Random;
  readonly engine: number;
  /** Blocks of a prompt at most. */
  readonly maxDepth: number;
  readonly tiers: number;
}

/** A prompt as an engine sees it. */
interface Prompt {
  readonly adapter: string | undefined;
  readonly blocks: readonly NaiveBlock[];
}

/**
 * Draws events such as an engine sends that loses, repeats and mixes up a part of what it says: few contents, so that
 * prompts share prefixes, namespaces that do not show in the contents, keys, adapters, tiers, events that are lost.
 */
export class RandomHistory {
  readonly #options: HistoryOptions;
  readonly #names: bigint[] = [];

  constructor(options: HistoryOptions) {
    this.#options = options;
  }

  /** An event to apply, and how to apply it to the naive ledger, which gives what the report has to say of it. */
  next(): { event: TestEvent; applyTo: (naive: NaiveLedger) => Partial<LedgerReport> } {
    const dice = this.#options.random.integer(1_000);
    if (dice < 480) return this.#stored();
    if (dice < 950) return this.#removed();
    if (dice < 996) return this.#moved();
    return {
      event: { kind: "cleared" },
      applyTo: (naive) => {
        naive.clear();
        return {};
      },
    };
  }

  prompt(): Prompt {
    const { random, engine, maxDepth } = this.#options;
    const namespace = random.integer(8) === 0 ? 1 + random.integer(2) : 0;
    const adapter = random.integer(10) === 0 ? "adapter" : undefined;
    let path = `${namespace}:${adapter}`;
    const blocks: NaiveBlock[] = [];
    for (let depth = 1 + random.integer(maxDepth); depth > 0; depth--) {
      // Mostly the first choice, so that chains are long and meet again.
      const choice = random.integer(4) > 0 ? 0 : random.integer(3);
      const key = random.integer(60) === 0 ? "image" : undefined;
      path += `,${choice}${key ?? ""}`;
      // Two of the choices begin alike.
      const first = choice === 2 ? 1_000 : 0;
      const tokens = Array.from({ length: engine }, (_, at) => at + (2 * at + 1 < engine ? first : choice * 1_000));
      blocks.push({ name: nameOf(path), tokens, key });
    }
    return { adapter, blocks };
  }

  #stored(): ReturnType<RandomHistory["next"]> {
    const { random } = this.#options;
    const { adapter, blocks } = this.prompt();
    const first = random.integer(3) === 0 ? 0 : random.integer(blocks.length);
    const run = blocks.slice(first).map((block) => {
      // Now and then the engine uses the hash of another block.
      if (random.integer(200) > 0 || this.#names.length === 0) return block;
      return { ...block, name: this.#names[random.integer(this.#names.length)]! };
    });
    const parent = first === 0 ? undefined : blocks[first - 1]!.name;
    const tier = this.#tier();
    for (const { name } of run) this.#remember(name);
    return {
      event: {
        kind: "stored",
        hashes: run.map(({ name }) => name),
        parent,
        tokens: run.flatMap(({ tokens }) => tokens),
        blockSize: this.#options.engine,
        tier,
        detail: { adapter, blockKeys: run.map(({ key }) => key) },
      },
      applyTo: (naive) => {
        naive.store(run, parent, tier, adapter);
        return {};
      },
    };
  }

  #removed(): ReturnType<RandomHistory["next"]> {
    const { random } = this.#options;
    const hashes: bigint[] = [];
    const tier = this.#tier();
    for (let left = Math.min(this.#names.length, 1 + random.integer(8)); left > 0; left--) {
      hashes.push(this.#names[random.integer(this.#names.length)]!);
    }
    return {
      event: { kind: "removed", hashes, tier },
      applyTo: (naive) => {
        const removedBlocks = hashes.filter((name) => naive.remove(name, tier)).length;
        return { removedBlocks, unknownRemovals: hashes.length - removedBlocks };
      },
    };
  }

  #moved(): ReturnType<RandomHistory["next"]> {
    const name = this.#names[this.#options.random.integer(Math.max(1, this.#names.length))] ?? 1n;
    const tier = this.#tier();
    return {
      event: { kind: "stored", hashes: [name], tokens: [], tier },
      applyTo: (naive) => ({ unknownMoves: naive.move(name, tier) ? 0 : 1 }),
    };
  }

  #tier(): number {
    const { random, tiers } = this.#options;
    return random.integer(3) > 0 ? 0 : random.integer(tiers);
  }

  #remember(name: bigint): void {
    const { random } = this.#options;
    if (this.#names.length < 300) this.#names.push(name);
    else this.#names[random.integer(300)] = name;
  }
}

/** The engine's hash of a path: FNV-1a, 64 bits. */
function nameOf(path: string): bigint {
  let hash = 0xcbf29ce484222325n;
  for (let at = 0; at < path.length; at++) {
    hash = ((hash ^ BigInt(path.charCodeAt(at))) * 0x100000001b3n) & 0xffff_ffff_ffff_ffffn;
  }
  return hash;
}
