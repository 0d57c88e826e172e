import type { Random } from "@espalier/core";
import {
  type BlockChanges,
  type BlockReport,
  blockChange,
  createBlockEngine,
  createEngine,
  type EngineParameters,
  type KvEvent,
  type RequestReport,
} from "@espalier/engine-model";
import { expect } from "vitest";
import { GENERATED } from "./harness.ts";

/** Names contents of blocks by their chains: small numbers, and the two words that stand for them in requests. */
interface ChainNames {
  /** The number of the block of these tokens behind `parent`; -1 stands before the first block. */
  name(parent: number, tokens: ArrayLike<number>): number;
  numberOf(low: number, high: number): number;
  parentOf(number: number): number;
  /** Chain words of all full blocks. */
  chainOf(tokens: Uint32Array, blockSize: number): Uint32Array;
}

function createChainNames(random: Random): ChainNames {
  const numbers = new Map<string, number>();
  const words: number[] = [];
  const parents: number[] = [];
  const byWords = new Map<string, number>();
  const names: ChainNames = {
    name(parent, tokens) {
      const key = `${parent}/${Array.from(tokens).join(",")}`;
      let number = numbers.get(key);
      if (number === undefined) {
        number = parents.length;
        numbers.set(key, number);
        parents.push(parent);
        words.push(random.integer(0x1_0000_0000), random.integer(0x1_0000_0000));
        byWords.set(`${words[2 * number]}/${words[2 * number + 1]}`, number);
      }
      return number;
    },
    numberOf: (low, high) => byWords.get(`${low}/${high}`)!,
    parentOf: (number) => parents[number]!,
    chainOf(tokens, blockSize) {
      const chain: number[] = [];
      let block = -1;
      for (let end = blockSize; end <= tokens.length; end += blockSize) {
        block = names.name(block, tokens.subarray(end - blockSize, end));
        chain.push(words[2 * block]!, words[2 * block + 1]!);
      }
      return Uint32Array.from(chain);
    },
  };
  return names;
}

/** What became reusable (`+`) or ceased to be (`-`), block by block, with the time; `0` is all of it. `c`: in CPU memory. */
export type Changes = string[];

/** Blocks that are reusable after the changes so far. */
export type Presence = Set<number>;

/** Reusable blocks whose parents are not: no request can find them. */
export function holesIn(presence: Presence, names: ChainNames): number {
  let holes = 0;
  for (const block of presence) if (names.parentOf(block) >= 0 && !presence.has(names.parentOf(block))) holes++;
  return holes;
}

function change(presence: Presence, log: Changes, sign: "+" | "-", block: number, timeMs: number) {
  if (sign === "+") presence.add(block);
  else presence.delete(block);
  log.push(`${sign}${block} ${timeMs}`);
}

function clear(presence: Presence, log: Changes, timeMs: number): void {
  presence.clear();
  // Two in a row are one.
  if (log.at(-1) !== `0 ${timeMs}`) log.push(`0 ${timeMs}`);
}

/** Net changes from the events of an engine with tokens: every copy counts there. */
function createEventReader(names: ChainNames, presence: Presence, log: Changes, onCopy: () => void) {
  const blockOf = new Map<bigint, number>();
  const copies = new Map<number, number>();
  /** The blocks of an event about CPU memory; one with tokens must name them as well. */
  const moved = (event: Exclude<KvEvent, { type: "cleared" }>): number[] => {
    const blocks = event.hashes.map((hash) => blockOf.get(hash)!);
    if (event.type === "stored" && event.tokens.length > 0) {
      let parent = event.parentHash === undefined ? -1 : blockOf.get(event.parentHash)!;
      for (const [at, block] of blocks.entries()) {
        parent = names.name(parent, event.tokens.subarray(at * event.blockSize, (at + 1) * event.blockSize));
        expect(parent).toBe(block);
      }
    }
    return blocks;
  };
  return (events: readonly KvEvent[], timeMs: number): void => {
    for (const event of events) {
      if (event.type === "cleared") {
        copies.clear();
        clear(presence, log, timeMs);
      } else if (event.medium !== undefined) {
        for (const block of moved(event)) log.push(`c${event.type === "stored" ? "+" : "-"}${block} ${timeMs}`);
      } else if (event.type === "stored") {
        let block = event.parentHash === undefined ? -1 : blockOf.get(event.parentHash)!;
        for (const [at, hash] of event.hashes.entries()) {
          block = names.name(block, event.tokens.subarray(at * event.blockSize, (at + 1) * event.blockSize));
          blockOf.set(hash, block);
          const count = copies.get(block) ?? 0;
          copies.set(block, count + 1);
          if (count === 0) change(presence, log, "+", block, timeMs);
          else onCopy();
        }
      } else {
        for (const hash of event.hashes) {
          const block = blockOf.get(hash)!;
          const count = copies.get(block)! - 1;
          copies.set(block, count);
          if (count === 0) change(presence, log, "-", block, timeMs);
        }
      }
    }
  };
}

function createChangeReader(names: ChainNames, presence: Presence, log: Changes) {
  return (changes: BlockChanges, timeMs: number): void => {
    let block = 0;
    for (let run = 0; run < changes.runs; run++) {
      const kind = changes.kinds[run];
      if (kind === blockChange.cleared) {
        clear(presence, log, timeMs);
      }
      for (; block < changes.ends[run]!; block++) {
        const number = names.numberOf(changes.words[2 * block]!, changes.words[2 * block + 1]!);
        if (kind === blockChange.offloaded) log.push(`c+${number} ${timeMs}`);
        else if (kind === blockChange.discarded) log.push(`c-${number} ${timeMs}`);
        else change(presence, log, kind === blockChange.stored ? "+" : "-", number, timeMs);
      }
    }
  };
}

/** One engine of each form, to be given the same. */
export function createBothForms(parameters: EngineParameters, random: Random) {
  const names = createChainNames(random);
  const tokenSide = {
    reports: [] as RequestReport[],
    firstTokens: [] as [number, number][],
    changes: [] as Changes,
    presence: new Set<number>() as Presence,
    /** Blocks that were stored although they were there. */
    copies: 0,
  };
  const blockSide = {
    reports: [] as BlockReport[],
    firstTokens: [] as [number, number][],
    changes: [] as Changes,
    presence: new Set<number>() as Presence,
    /** Tokens told of, by request. */
    progress: new Map<number, number>(),
  };
  const tokenEngine = createEngine({
    parameters,
    hashSeed: 7,
    observer: {
      token: (id, index, _token, timeMs) => {
        if (index === 0) tokenSide.firstTokens.push([Number(id), timeMs]);
      },
      finished: (report) => void tokenSide.reports.push(report),
      events: createEventReader(names, tokenSide.presence, tokenSide.changes, () => tokenSide.copies++),
    },
  });
  const blockEngine = createBlockEngine({
    parameters,
    observer: {
      firstToken: (id, timeMs) => void blockSide.firstTokens.push([id, timeMs]),
      progress: (id, tokens) => void blockSide.progress.set(id, (blockSide.progress.get(id) ?? 0) + tokens),
      finished: (report) => void blockSide.reports.push(report),
      blocks: createChangeReader(names, blockSide.presence, blockSide.changes),
    },
  });
  return {
    names,
    tokenEngine,
    blockEngine,
    tokenSide,
    blockSide,
    submit(id: number, promptTokens: Uint32Array, outputTokens: number, priority: number, timeMs: number): void {
      const outputToken = (index: number): number => GENERATED + (index % 3);
      const output = Uint32Array.from({ length: outputTokens }, (_, index) => outputToken(index));
      const chain = names.chainOf(Uint32Array.of(...promptTokens, ...output), parameters.blockSize);
      tokenEngine.submit({ id: `${id}`, promptTokens, outputTokens, outputToken, priority }, timeMs);
      blockEngine.submit({ id, promptTokens: promptTokens.length, outputTokens, chain, priority }, timeMs);
    },
  };
}

export type BothForms = ReturnType<typeof createBothForms>;
