import { appendFileSync } from "node:fs";
import { createSeededRandom, type Random, systemClock } from "@espalier/common";
import { mutateBytes } from "./mutate-bytes.ts";

/** One decoder of bytes that others write. */
export interface FuzzTarget {
  readonly name: string;
  /** Bytes that it reads, to be changed; at least one. */
  readonly seeds: readonly Uint8Array[];
  /**
   * Reads the bytes and checks what comes out, such as that it is within its bounds.
   *
   * @param random for choices of the test's own, such as where a stream is cut into chunks; the same for the same case
   * @throws what `refuses` knows, for bytes that are refused; anything else is a finding
   */
  readonly read: (bytes: Uint8Array, random: Random) => unknown;
  /** Whether what was thrown is the documented error; `RangeError` unless given. */
  readonly refuses?: (thrown: unknown) => boolean;
}

/** `test` of the runner. */
export type DeclareTest = (name: string, run: () => Promise<void>, timeoutMs: number) => void;

/**
 * Declares a test for each decoder of a file. They run shortly, or as `npm run test:fuzz` asks for.
 *
 * @param outcome what becomes of whatever comes, for the tests' names
 */
export function fuzzInFile(test: DeclareTest, outcome: string, targets: readonly FuzzTarget[]): void {
  const request = readFuzzRequest(process.env.ESPALIER_FUZZ);
  for (const target of targets) {
    const run = async (): Promise<void> => void (await fuzzTarget(target, targets.length, request));
    test(`${target.name}: ${outcome}`, run, timeoutMs);
  }
}

/** The runner ends a test by its own bound: `npm run test:fuzz` says how long decoders run. */
const timeoutMs = 86_400_000;

/** What `npm run test:fuzz` asks for. */
interface FuzzRequest {
  readonly seed: number;
  /** For each decoder of a file together with the others of it, in milliseconds. */
  readonly fileMs: number;
  /** Takes a line of JSON when a decoder's turn begins, and one when it ends. */
  readonly reportFile: string;
  /** The only decoder to be run. */
  readonly decoder?: string;
  /** The only case of it to be run. */
  readonly case?: number;
}

/** @param text JSON of a request, as the environment has it; undefined in `npm test` */
export const readFuzzRequest = (text: string | undefined): FuzzRequest | undefined =>
  text === undefined ? undefined : (JSON.parse(text) as FuzzRequest);

/** In `npm test`: so many cases of each decoder, or so long, whichever ends first. */
const shortCases = 1_500;
const shortMs = 400;
const shortSeed = 1;

/**
 * Runs one decoder of a file, for as long as the request gives it, or shortly where there is none.
 *
 * @param decoders how many of the file are to share its time
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
  const tell = (line: object): void => appendFileSync(reportFile, `${JSON.stringify(line)}\n`);
  tell({ began: target.name });
  try {
    const report = await fuzzDecoder(target, runOf(request, decoders));
    tell(report);
    return report.cases;
  } catch (error) {
    tell({ name: target.name, finding: error instanceof Error ? error.message : String(error) });
    throw error;
  }
}

function runOf({ seed, fileMs, decoder, case: firstCase }: FuzzRequest, decoders: number): FuzzRun {
  if (firstCase !== undefined) return { seed, maxCases: 1, maxMs: Number.POSITIVE_INFINITY, firstCase };
  return { seed, maxCases: Number.POSITIVE_INFINITY, maxMs: decoder === undefined ? fileMs / decoders : fileMs };
}

export interface FuzzRun {
  readonly seed: number;
  /** Ends the run after so many cases, */
  readonly maxCases: number;
  /** or after so long. */
  readonly maxMs: number;
  /** Begins with this case; 0 unless given. */
  readonly firstCase?: number;
}

/** How one decoder fared. */
export interface FuzzReport {
  readonly name: string;
  readonly seed: number;
  readonly cases: number;
  /** Cases that were refused with the documented error. */
  readonly refused: number;
  /** The longest that one case took. */
  readonly slowestMs: number;
}

/** Something that a decoder must not do. */
class FuzzFinding extends Error {
  override readonly name = "FuzzFinding";
}

/** What a case takes is microseconds to milliseconds; a busy machine may take the processor away for long. */
const maxCaseMs = 10_000;

/** The clock is read once in so many cases. */
const casesPerLook = 16;

/**
 * Feeds a decoder changed bytes. A case depends on the seed, its number and the decoder's own seeds alone.
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

/** An exhausted stack is a RangeError too, and never what a decoder means to say. */
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
