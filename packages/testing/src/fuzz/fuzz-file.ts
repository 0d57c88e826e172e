import { appendFileSync } from "node:fs";
import { type FuzzRun, fuzzDecoder } from "./fuzz-decoder.ts";
import type { FuzzRequest } from "./fuzz-request.ts";
import type { FuzzTarget } from "./fuzz-target.ts";

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
