import { fuzzTarget } from "./fuzz-file.ts";
import { readFuzzRequest } from "./fuzz-request.ts";
import type { FuzzTarget } from "./fuzz-target.ts";

/** The runner ends a test by its own bound: `npm run test:fuzz` says how long decoders run. */
const timeoutMs = 86_400_000;

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
