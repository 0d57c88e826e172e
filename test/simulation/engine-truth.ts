import { blockChange } from "@espalier/engine-model";
import { createPrefixIndex, type PrefixIndex, tier } from "@espalier/prefix-index";
import type { BatchMark } from "@espalier/shared-tree";
import type { SimFleet } from "@espalier/simulator";

type SimEngine = SimFleet["engines"][number];
type EngineMessage = SimEngine["messages"][number];

/** What engines hold after each of their messages, read at the source: what every router should come to. */
export class EngineTruth {
  readonly #index: PrefixIndex;
  readonly #digests = new Map<string, string>();
  readonly #stored: Set<number>[];
  /** Blocks stored so far by the epoch that stored most. */
  readonly #mostStored: number[];
  /** Messages in which blocks went. */
  evictions = 0;

  constructor(engines: readonly SimEngine[]) {
    this.#index = createPrefixIndex({ maxTargets: engines.length });
    this.#stored = engines.map(() => new Set());
    this.#mostStored = engines.map(() => 0);
    for (const engine of engines) {
      engine.onMessage((message) => this.#read(engine.number, message));
      engine.onEpoch(() => {
        if (!engine.isUp) return;
        this.#index.clearFacts(engine.number);
        this.#stored[engine.number]!.clear();
      });
    }
  }

  /** What an engine holds now. */
  digest(engine: number): string {
    return this.#index.digest(engine).join(".");
  }

  /** What an engine held after a message, of whichever epoch; undefined for a message that it never sent. */
  digestAt(engine: number, mark: BatchMark): string | undefined {
    return this.#digests.get(keyOf(engine, mark));
  }

  /** No reader can think that an engine holds more than this. */
  mostBlocks(engine: number): number {
    return this.#mostStored[engine]!;
  }

  #read(engine: number, message: EngineMessage): void {
    const { changes } = message;
    const { words, runs, kinds, ends } = changes;
    let from = 0;
    for (let run = 0; run < runs; run++) {
      const to = ends[run]!;
      if (kinds[run] === blockChange.stored) {
        this.#index.storeFacts(engine, tier.gpu, words, from, to);
        for (let block = from; block < to; block++) this.#stored[engine]!.add(words[2 * block]!);
      } else if (kinds[run] === blockChange.removed) {
        this.#index.removeFacts(engine, tier.gpu, words, from, to);
        this.evictions++;
      } else this.#index.clearFacts(engine);
      from = to;
    }
    this.#mostStored[engine] = Math.max(this.#mostStored[engine]!, this.#stored[engine]!.size);
    this.#digests.set(keyOf(engine, message), this.digest(engine));
  }
}

const keyOf = (engine: number, { sequence, timestampUs, checksum }: BatchMark): string =>
  `${engine} ${sequence} ${timestampUs} ${checksum}`;
