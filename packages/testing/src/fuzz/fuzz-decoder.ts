import { createSeededRandom, systemClock } from "@espalier/common";
import type { FuzzReport } from "./fuzz-request.ts";
import type { FuzzTarget } from "./fuzz-target.ts";
import { mutateBytes } from "./mutate-bytes.ts";

/** What a case takes is microseconds to milliseconds; a busy machine may take the processor away for long. */
const maxCaseMs = 10_000;
/** The clock is read once in so many cases. */
const casesPerLook = 16;

export interface FuzzRun {
  readonly seed: number;
  /** Ends the run after so many cases, */
  readonly maxCases: number;
  /** or after so long. */
  readonly maxMs: number;
  /** Begins with this case; 0 unless given. */
  readonly firstCase?: number;
}

/** Something that a decoder must not do. */
class FuzzFinding extends Error {
  override readonly name = "FuzzFinding";
}

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
