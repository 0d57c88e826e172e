import { createHash } from "node:crypto";
import { type BlockHasher, type Clock, createBlockHasher, createSeededRandom, systemClock } from "@espalier/core";
import type { Figures } from "../support/median-spread.ts";
import { positive, quick, runs } from "../support/params.ts";
import { repeatRuns } from "../support/repeat-runs.ts";
import { defineSuite, joinRuns, shown } from "../support/suite.ts";

const blockSize = 16;
const blockBytes = 64;
const longTokens = 12_000;
const shortTokens = 1_000;
const textBytes = 48 * 1_024;
/** Different prompts, used in rotation. */
const promptCount = 4;
const vocabularySize = 150_000;
const root = { low: 0x9e3779b9, high: 0x7f4a7c15 };

/** The figures of one run, by hasher. */
type HashRun = Readonly<Record<"wasm" | "js" | "sha256", Figures>>;

/** Chain hashing of prompts, in tokens per second. */
export const hashSuite = defineSuite({
  name: "hash",
  summary: "chain hashing of tokens and text, beside JavaScript and SHA-256",
  about: `
Content digests and chain hashes of prompts, in blocks of ${blockSize} tokens or ${blockBytes} bytes of text: the WebAssembly kernel, beside
the JavaScript one and a chain of SHA-256 from node:crypto over the same blocks.`,
  params: {
    duration: positive({
      help: "seconds of each measurement, of which there are nine in a run",
      ...{ standard: 0.2, quick: 0.05, most: 60 },
    }),
    runs: runs(5),
    quick: quick(),
  },
  async measure({ duration, runs }, note) {
    const durationMs = duration * 1_000;
    const done = await repeatRuns({ runs, note }, (seed, noteRun) => {
      const run = runHashOnce({ durationMs, clock: systemClock, seed });
      noteRun(`${shown("", run.wasm.tokens_per_s ?? 0)} tokens/s`);
      return run;
    });
    return {
      params: {
        ...{ runs, duration_ms: durationMs, block_size: blockSize, block_bytes: blockBytes },
        ...{ tokens: longTokens, tokens_1k: shortTokens, text_bytes: textBytes },
      },
      ...joinRuns(done),
    };
  },
});

/** The results of one system for each kind of input. */
interface Hashing {
  readonly tokens: (prompt: Uint32Array) => void;
  readonly text: (text: string) => void;
}

/**
 * Measures all systems once.
 *
 * @param options.durationMs of each measurement; the warm-up for the optimiser takes half as long
 * @throws Error when the two kernels disagree
 */
export function runHashOnce(options: { durationMs: number; clock: Clock; seed: number }): HashRun {
  const random = createSeededRandom(options.seed);
  const promptsOf = (length: number): Uint32Array[] =>
    Array.from({ length: promptCount }, () => Uint32Array.from({ length }, () => random.integer(vocabularySize)));
  const [long, short] = [promptsOf(longTokens), promptsOf(shortTokens)];
  const letters = Uint8Array.from({ length: textBytes }, () => 0x20 + random.integer(0x5f));
  const text = Buffer.from(letters).toString("latin1");
  const measure = (work: (turn: number) => void): number => microsecondsPerCall(work, options);
  const figuresOf = ({ tokens, text: hashText }: Hashing): Figures => ({
    tokens_per_s: (longTokens / measure((turn) => tokens(long[turn % promptCount]!))) * 1e6,
    tokens_per_s_1k: (shortTokens / measure((turn) => tokens(short[turn % promptCount]!))) * 1e6,
    text_48k_us: measure(() => hashText(text)),
  });
  const hashers = { wasm: createBlockHasher({ kernel: "wasm" }), js: createBlockHasher({ kernel: "js" }) };
  requireAgreement(hashers.wasm, hashers.js, long[0]!, text);
  return {
    wasm: figuresOf(hashingWith(hashers.wasm)),
    js: figuresOf(hashingWith(hashers.js)),
    sha256: figuresOf(hashingWithSha256()),
  };
}

/** Calls between two readings of the clock. Few, so that most batches pass without an interruption of the process. */
const callsPerBatch = 8;
const maxBatches = 50_000;

/** The median over batches of calls, which the machine's other work affects less than the mean. */
function microsecondsPerCall(
  work: (turn: number) => void,
  { clock, durationMs }: { clock: Clock; durationMs: number },
): number {
  const batchesMs = new Float64Array(maxBatches);
  const repeat = (forMs: number): number => {
    const startMs = clock.nowMs();
    let lastMs = startMs;
    let batches = 0;
    for (let calls = 0; batches < maxBatches && lastMs - startMs < forMs; batches++) {
      for (let index = 0; index < callsPerBatch; index++) work(calls++);
      const nowMs = clock.nowMs();
      batchesMs[batches] = nowMs - lastMs;
      lastMs = nowMs;
    }
    return batches;
  };
  repeat(durationMs / 2);
  const measured = batchesMs.subarray(0, repeat(durationMs)).sort();
  return (measured[measured.length >> 1]! / callsPerBatch) * 1_000;
}

const maxBlocks = Math.max(longTokens / blockSize, textBytes / blockBytes);

function hashingWith(hasher: BlockHasher): Hashing {
  const chain = new Uint32Array(2 * maxBlocks);
  const contents = new Uint32Array(2 * maxBlocks);
  return {
    tokens: (tokens) => hasher.hashTokens({ tokens, blockSize, parent: root, chain, contents }),
    text: (text) => hasher.hashText({ text, blockBytes, parent: root, chain, contents }),
  };
}

/** Hashes each block after the digest of the previous one, as engines with SHA-256 do. */
function hashingWithSha256(): Hashing {
  const digests: Buffer[] = new Array(maxBlocks);
  const chain = (bytes: Uint8Array, size: number): void => {
    let parent = Buffer.alloc(32);
    for (let block = 0; (block + 1) * size <= bytes.length; block++) {
      const content = bytes.subarray(block * size, (block + 1) * size);
      parent = createHash("sha256").update(parent).update(content).digest();
      digests[block] = parent;
    }
  };
  return {
    tokens: ({ buffer, byteOffset, byteLength }) =>
      chain(new Uint8Array(buffer, byteOffset, byteLength), 4 * blockSize),
    text: (text) => chain(Buffer.from(text), blockBytes),
  };
}

/** @throws Error when the kernels disagree, because no figure means anything then */
function requireAgreement(one: BlockHasher, other: BlockHasher, tokens: Uint32Array, text: string): void {
  const results = [one, other].map((hasher) => {
    const chains = [new Uint32Array(2 * maxBlocks), new Uint32Array(2 * maxBlocks)] as const;
    hasher.hashTokens({ tokens, blockSize, parent: root, chain: chains[0] });
    hasher.hashText({ text, blockBytes, parent: root, chain: chains[1] });
    return chains.join(";");
  });
  if (results[0] !== results[1]) throw new Error(`${one.kernel} and ${other.kernel} give different hashes`);
}
