import { appendFileSync } from "node:fs";
import { createSeededRandom, type Random, systemClock } from "@espalier/core";
import { mutateBytes } from "./mutate-bytes.ts";

/** A decoder of untrusted bytes. */
export interface FuzzTarget {
  readonly name: string;
  /** Valid inputs to mutate; at least one. */
  readonly seeds: readonly Uint8Array[];
  /**
   * Decodes the bytes and checks the result, such as its bounds.
   *
   * @param random for choices of the test's own, such as where a stream is cut into chunks; the same for the same case
   * @throws an error that `refuses` accepts, for refused bytes; any other error is a finding
   */
  readonly read: (bytes: Uint8Array, random: Random) => unknown;
  /** Whether the error is the documented one; `RangeError` by default. */
  readonly refuses?: (thrown: unknown) => boolean;
}

/** `test` of the runner. */
export type DeclareTest = (name: string, run: () => Promise<void>, timeoutMs: number) => void;

/**
 * Declares a test for each decoder of a file. They run briefly, or as `npm run test:fuzz` configures.
 *
 * @param outcome the expected outcome, for the tests' names
 */
export function fuzzInFile(test: DeclareTest, outcome: string, targets: readonly FuzzTarget[]): void {
  const request = readFuzzRequest(process.env.ESPALIER_FUZZ);
  for (const target of targets) {
    const run = async (): Promise<void> => void (await fuzzTarget(target, targets.length, request));
    test(`${target.name}: ${outcome}`, run, timeoutMs);
  }
}

/** The valid inputs of each decoder in hex, a line each: what a golden file keeps, so that a change of the encoders shows. */
export function seedsInHex(targets: readonly FuzzTarget[]): string {
  const lines = new Map<string, string>();
  for (const { name, seeds } of targets) {
    for (const seed of seeds) {
      const hex = Buffer.from(seed).toString("hex");
      // Some decoders read the same bytes.
      if (!lines.has(hex)) lines.set(hex, `${name}: ${hex}\n`);
    }
  }
  return [...lines.values()].join("");
}

/** Above any run: `npm run test:fuzz` bounds the time of decoders. */
const timeoutMs = 86_400_000;

/** A run of `npm run test:fuzz`. */
interface FuzzRequest {
  readonly seed: number;
  /** Time for all decoders of a file together. */
  readonly fileMs: number;
  /** Path of the file that gets a line of JSON at the start and the end of each decoder. */
  readonly reportFile: string;
  /** The only decoder to run. */
  readonly decoder?: string;
  /** The only case to run. */
  readonly case?: number;
}

/** @param text JSON of a request, as the environment has it; undefined in `npm test` */
export const readFuzzRequest = (text: string | undefined): FuzzRequest | undefined =>
  text === undefined ? undefined : (JSON.parse(text) as FuzzRequest);

/** In `npm test`: the bounds of each decoder. */
const shortCases = 1_500;
const shortMs = 400;
const shortSeed = 1;

/**
 * Runs one decoder of a file, for the time of the request, or briefly without one.
 *
 * @param decoders that share the time of the file
 * @returns cases run; 0 when another decoder was asked for
 * @throws FuzzFinding
 */
export async function fuzzTarget(
  target: FuzzTarget,
  decoders: number,
  request: FuzzRequest | undefined,
): Promise<number> {
  if (!request) {
    const { cases } = await fuzzDecoder(target, { seed: shortSeed, maxCases: shortCases, maxMs: shortMs });
    return cases;
  }
  const { decoder, reportFile } = request;
  if (decoder !== undefined && decoder !== target.name) return 0;
  const report = (line: object): void => appendFileSync(reportFile, `${JSON.stringify(line)}\n`);
  report({ began: target.name });
  try {
    const result = await fuzzDecoder(target, runOf(request, decoders));
    report(result);
    return result.cases;
  } catch (error) {
    report({ name: target.name, finding: error instanceof Error ? error.message : String(error) });
    throw error;
  }
}

function runOf({ seed, fileMs, decoder, case: firstCase }: FuzzRequest, decoders: number): FuzzRun {
  if (firstCase !== undefined) return { seed, maxCases: 1, maxMs: Number.POSITIVE_INFINITY, firstCase };
  return { seed, maxCases: Number.POSITIVE_INFINITY, maxMs: decoder === undefined ? fileMs / decoders : fileMs };
}

export interface FuzzRun {
  readonly seed: number;
  /** Ends the run after this many cases. */
  readonly maxCases: number;
  /** Ends the run after this time. */
  readonly maxMs: number;
  /** The first case; 0 by default. */
  readonly firstCase?: number;
}

/** The result of one decoder. */
export interface FuzzReport {
  readonly name: string;
  readonly seed: number;
  readonly cases: number;
  /** Cases that were refused with the documented error. */
  readonly refused: number;
  /** The slowest case. */
  readonly slowestMs: number;
}

/** A defect of a decoder. */
class FuzzFinding extends Error {
  override readonly name = "FuzzFinding";
}

/** Maximum milliseconds per case; the bound allows for a busy machine. */
const maxCaseMs = 10_000;

/** Cases between two readings of the clock. */
const casesPerLook = 16;

/**
 * Feeds a decoder mutated bytes. A case depends only on the seed, its number and the decoder's own seeds.
 *
 * @throws FuzzFinding with the command that runs the case again, when a case ends with an error that the decoder does not
 *   document, or takes too long
 */
export async function fuzzDecoder(target: FuzzTarget, run: FuzzRun): Promise<FuzzReport> {
  const { name, seeds, read, refuses = isRangeError } = target;
  const { seed, maxCases, maxMs, firstCase = 0 } = run;
  const startMs = systemClock.nowMs();
  let refused = 0;
  let slowestMs = 0;
  let cases = 0;
  for (; cases < maxCases; cases++) {
    if (cases % casesPerLook === 0 && systemClock.nowMs() - startMs >= maxMs) break;
    const number = firstCase + cases;
    const random = createSeededRandom(Math.imul(seed + 1, 0x9e37_79b1) ^ number);
    const bytes = mutateBytes(random, seeds);
    const caseMs = systemClock.nowMs();
    try {
      const outcome = read(bytes, random);
      if (outcome instanceof Promise) await outcome;
    } catch (thrown) {
      if (!refuses(thrown)) throw finding(name, { seed, number, bytes }, describe(thrown), thrown);
      refused += 1;
    }
    const tookMs = systemClock.nowMs() - caseMs;
    slowestMs = Math.max(slowestMs, tookMs);
    if (tookMs > maxCaseMs) throw finding(name, { seed, number, bytes }, `took ${Math.round(tookMs)} ms`);
  }
  return { name, seed, cases, refused, slowestMs };
}

const isRangeError = (thrown: unknown): boolean => thrown instanceof RangeError && !isStackOverflow(thrown);

/** A stack overflow is a RangeError too, and never a documented error. */
const isStackOverflow = (thrown: unknown): boolean =>
  thrown instanceof RangeError && thrown.message.startsWith("Maximum call stack");

const describe = (thrown: unknown): string =>
  thrown instanceof Error ? `threw ${thrown.name}: ${thrown.message}` : `threw ${String(thrown)}`;

interface FailedCase {
  readonly seed: number;
  readonly number: number;
  readonly bytes: Uint8Array;
}

const shownBytes = 200;

function finding(name: string, { seed, number, bytes }: FailedCase, what: string, cause?: unknown): FuzzFinding {
  const hex = Buffer.from(bytes.subarray(0, shownBytes)).toString("hex");
  const command = `npm run test:fuzz -- --decoder "${name}" --seed ${seed} --case ${number}`;
  const message = `${name} ${what}\nrun it again: ${command}\n${bytes.length} bytes: ${hex}${bytes.length > shownBytes ? "..." : ""}`;
  return new FuzzFinding(message, { cause });
}
