import { createHash } from "node:crypto";
import { parseArgs } from "node:util";
import { type BlockHasher, type Clock, createBlockHasher, createSeededRandom, systemClock } from "@espalier/core";
import { formatTable } from "@espalier/simulator";
import { type Figures, summarizeRuns } from "../support/median-spread.ts";
import type { BenchReport, Suite } from "../support/suite.ts";
import { UsageError } from "../support/usage-error.ts";

const blockSize = 16;
const blockBytes = 64;
const longTokens = 12_000;
const shortTokens = 1_000;
const textBytes = 48 * 1_024;
/** Different prompts, used in rotation. */
const promptCount = 4;
const vocabularySize = 150_000;
const root = { low: 0x9e3779b9, high: 0x7f4a7c15 };

const help = `Usage: npm run bench -- hash [options]

Content digests and chain hashes of prompts, in blocks of ${blockSize} tokens or ${blockBytes} bytes of text: the WebAssembly kernel, beside
the JavaScript one and a chain of SHA-256 from node:crypto over the same blocks.

  --duration S  seconds of each measurement (0.2), of which there are nine in a run
  --runs N      runs, of which the medians count (5)
  --quick       one short run
  --json        one JSON object on standard output
`;

interface HashOptions {
  readonly runs: number;
  readonly durationMs: number;
}

/** The figures of one run, by hasher. */
export interface HashRun {
  readonly wasm: Figures;
  readonly js: Figures;
  readonly sha256: Figures;
}

/** Chain hashing of prompts, in tokens per second. */
export const hashSuite: Suite = {
  name: "hash",
  summary: "chain hashing of tokens and text, beside JavaScript and SHA-256",
  help,
  async run(args, note) {
    const options = readOptions(args);
    const runs: HashRun[] = [];
    for (let index = 0; index < options.runs; index++) {
      runs.push(runHashOnce({ durationMs: options.durationMs, clock: systemClock, seed: index + 1 }));
      note(`run ${index + 1} of ${options.runs}: ${millions(runs.at(-1)?.wasm.tokens_per_s)} M tokens/s`);
    }
    return { report: hashReport(runs, options.durationMs), table: hashTable };
  },
};

/** @throws UsageError */
function readOptions(args: readonly string[]): HashOptions {
  const { values } = parseArgs({
    args: [...args],
    options: { duration: { type: "string" }, runs: { type: "string" }, quick: { type: "boolean" } },
  });
  const seconds = Number(values.duration ?? (values.quick ? 0.05 : 0.2));
  const runs = Number(values.runs ?? (values.quick ? 1 : 5));
  if (!(seconds > 0 && seconds <= 60)) throw new UsageError("--duration must be a number above 0 and up to 60");
  if (!(Number.isInteger(runs) && runs >= 1 && runs <= 100)) {
    throw new UsageError("--runs must be a whole number from 1 to 100");
  }
  return { runs, durationMs: seconds * 1_000 };
}

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

/** Joins runs into medians. */
export function hashReport(runs: readonly HashRun[], durationMs: number): BenchReport {
  const [wasm, js, sha256] = (["wasm", "js", "sha256"] as const).map((name) =>
    summarizeRuns(runs.map((run) => run[name])),
  );
  return {
    name: "hash",
    params: {
      runs: runs.length,
      duration_ms: durationMs,
      block_size: blockSize,
      block_bytes: blockBytes,
      tokens: longTokens,
      tokens_1k: shortTokens,
      text_bytes: textBytes,
    },
    metrics: wasm!.medians,
    baselines: { js: js!.medians, sha256: sha256!.medians },
    spread: { wasm: wasm!.spread, js: js!.spread, sha256: sha256!.spread },
    shares: [],
    warnings: [],
  };
}

/** The report for a terminal: medians, followed by the extremes of the runs; rates in millions. */
export function hashTable({ metrics, baselines, spread }: BenchReport): string {
  const figures: Readonly<Record<string, Figures | undefined>> = { wasm: metrics, ...baselines };
  const cell = (system: string, figure: string): string | undefined => {
    const extremes = spread[system]?.[figure];
    if (!extremes) return undefined;
    const show = figure.endsWith("_us") ? (value?: number) => value?.toFixed(1) : millions;
    return `${show(figures[system]?.[figure])} (${show(extremes.min)} .. ${show(extremes.max)})`;
  };
  return formatTable(Object.keys(metrics), [
    { header: "figure", value: (figure) => (figure.endsWith("_us") ? figure : `${figure}, millions`) },
    ...["wasm", "js", "sha256"].map((system) => ({
      header: system,
      value: (figure: string) => cell(system, figure),
    })),
  ]);
}

const millions = (value: number | undefined): string | undefined =>
  value === undefined ? undefined : (value / 1e6).toFixed(value < 1e8 ? 1 : 0);
