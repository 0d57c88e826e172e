import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { onTestFinished } from "vitest";
import type { RequestResult, TraceRequest } from "../../src/workload/index.ts";

/** Writes a file that is gone when the test is over, and gives its path. */
export async function temporaryFile(content: string | Buffer, name = "trace.jsonl"): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "espalier-workload-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const path = join(folder, name);
  await writeFile(path, content);
  return path;
}

export const jsonLines = (rows: readonly object[]): string => rows.map((row) => `${JSON.stringify(row)}\n`).join("");

export const gzipped = (content: string): Buffer => gzipSync(content);

/** A Mooncake line; the last block is partial unless `inputTokens` says otherwise. */
export function mooncakeRow(
  hashIds: readonly number[],
  inputTokens = hashIds.length * 512 - 100,
  timestamp = 0,
): object {
  return { timestamp, input_length: inputTokens, output_length: 20, hash_ids: hashIds };
}

export function traceRequest(of: Partial<TraceRequest>): TraceRequest {
  return {
    index: 0,
    arrivalMs: 0,
    inputTokens: 1_000,
    outputTokens: 10,
    blockIds: undefined,
    blockTokens: 512,
    session: "s",
    turn: 0,
    ...of,
  };
}

export function requestResult(of: Partial<RequestResult>): RequestResult {
  return {
    index: 0,
    session: "s",
    turn: 0,
    startMs: 0,
    firstTokenMs: 100,
    endMs: 1_000,
    inputTokens: 100,
    outputTokens: 10,
    cachedTokens: Number.NaN,
    engine: undefined,
    error: undefined,
    itlSumMs: 900,
    itlCount: 9,
    ...of,
  };
}
