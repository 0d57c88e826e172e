import { parseArgs } from "node:util";
import { systemClock } from "@espalier/core";
import { formatTable } from "@espalier/simulator";
import { type Figures, summarizeRuns } from "../support/median-spread.ts";
import type { BenchReport, Suite } from "../support/suite.ts";
import { UsageError } from "../support/usage-error.ts";
import {
  blockSize,
  conversationTokens,
  countMismatches,
  loadTokenizers,
  messageLength,
  newTokens,
  runTokenizerOnce,
  type TokenizerRun,
} from "./tokenizer-run.ts";

const help = `Usage: npm run bench -- tokenizer [options]

Tokens of prompts with the shipped model (4,096 tokens, byte-level BPE), beside the reference implementation (Hugging
Face tokenizers, native): new text, a conversation of ${conversationTokens} tokens whose last ${newTokens} are new (counted in all its
tokens, chain included), the same conversation again, one of 48 KB again; turns of a conversation of 48 KB and of an agent's of
200 KB from the body to the chain, each with some 256 new tokens; and how many hard texts get other tokens.

  --model DIR   a folder with another model's tokenizer.json
  --duration S  seconds of each measurement (0.4), of which there are seven in a run
  --runs N      runs, of which the medians count (5)
  --quick       one short run
  --json        one JSON object on standard output
`;

interface TokenizerOptions {
  readonly folder: string | undefined;
  readonly runs: number;
  readonly durationMs: number;
  readonly mixtures: number;
}

/** Tokens of prompts, in tokens per second. */
export const tokenizerSuite: Suite = {
  name: "tokenizer",
  summary: "tokens of new text and of conversations, beside the native tokenizers",
  help,
  async run(args, note) {
    const options = readOptions(args);
    const tokenizers = await loadTokenizers(options.folder);
    const { texts, mismatches } = await countMismatches(tokenizers, options.mixtures);
    note(`${mismatches} mismatches in ${texts} texts`);
    const runs: TokenizerRun[] = [];
    for (let index = 0; index < options.runs; index++) {
      const { durationMs } = options;
      runs.push(await runTokenizerOnce({ tokenizers, clock: systemClock, durationMs, seed: index + 1 }));
      note(`run ${index + 1} of ${options.runs}: ${short(runs.at(-1)!.espalier.tokens_per_s!)} tokens/s`);
    }
    const params = { runs: options.runs, duration_ms: options.durationMs, texts };
    return { report: tokenizerReport(runs, mismatches, params), table: tokenizerTable };
  },
};

/** @throws UsageError */
function readOptions(args: readonly string[]): TokenizerOptions {
  const { values } = parseArgs({
    args: [...args],
    options: {
      model: { type: "string" },
      duration: { type: "string" },
      runs: { type: "string" },
      quick: { type: "boolean" },
    },
  });
  const seconds = Number(values.duration ?? (values.quick ? 0.1 : 0.4));
  const runs = Number(values.runs ?? (values.quick ? 1 : 5));
  if (!(seconds > 0 && seconds <= 60)) throw new UsageError("--duration must be a number above 0 and up to 60");
  if (!(Number.isInteger(runs) && runs >= 1 && runs <= 100)) {
    throw new UsageError("--runs must be a whole number from 1 to 100");
  }
  return { folder: values.model, runs, durationMs: seconds * 1_000, mixtures: values.quick ? 50 : 1_000 };
}

/**
 * Joins runs into medians.
 *
 * @param mismatches texts with other tokens than the reference's
 */
export function tokenizerReport(
  runs: readonly TokenizerRun[],
  mismatches: number,
  params: BenchReport["params"],
): BenchReport {
  const espalier = summarizeRuns(runs.map((run) => run.espalier));
  const reference = summarizeRuns(runs.map((run) => run.reference));
  return {
    name: "tokenizer",
    params: {
      ...params,
      block_size: blockSize,
      conversation_tokens: conversationTokens,
      new_tokens: newTokens,
      message_characters: messageLength,
    },
    metrics: { ...espalier.medians, mismatches },
    baselines: { native: reference.medians },
    spread: { espalier: espalier.spread, native: reference.spread },
    shares: [],
    warnings: [],
  };
}

/** The report for a terminal: medians, followed by the extremes of the runs. */
export function tokenizerTable({ metrics, baselines, spread }: BenchReport): string {
  const cell = (figures: Figures | undefined, system: string, figure: string): string | undefined => {
    const value = figures?.[figure];
    if (value === undefined) return undefined;
    const extremes = spread[system]?.[figure];
    return extremes ? `${short(value)} (${short(extremes.min)} .. ${short(extremes.max)})` : short(value);
  };
  return formatTable(Object.keys(metrics), [
    { header: "figure", value: (figure) => figure },
    { header: "espalier", value: (figure) => cell(metrics, "espalier", figure) },
    { header: "native", value: (figure) => cell(baselines.native, "native", figure) },
  ]);
}

function short(value: number): string {
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  return value >= 1_000 ? value.toFixed(0) : value.toFixed(value === Math.round(value) ? 0 : 1);
}
