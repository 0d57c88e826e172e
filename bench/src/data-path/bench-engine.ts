import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chatAnswer, engineMetrics, modelsAnswer, sizedAnswer, streamPieces } from "./engine-bytes.ts";
import { streamTokens } from "./loads.ts";
import { compileNative, startNative } from "./native-program.ts";

/**
 * Engines in one process that answer at once with prepared bytes, so that only the system in front of them is measured.
 */
export interface BenchEngine {
  readonly urls: readonly string[];
  readonly pid: number;
  stop(): Promise<void>;
}

/** Addresses of the engine; a router sees each one as an engine. */
const usualAddresses = 4;

/**
 * Listens on the requested number of addresses of 127.0.0.1. Chat completions are answered as their `StreamShape`
 * fields say, streams with 48 tokens. `/health`, `/v1/models` and `/metrics` answer like vLLM.
 *
 * @throws Error when it cannot be compiled
 */
export async function startBenchEngine(addresses: number = usualAddresses): Promise<BenchEngine> {
  const program = await compileNative("engine");
  const folder = mkdtempSync(join(tmpdir(), "espalier-bench-engine-"));
  const file = join(folder, "answers");
  writeFileSync(file, answersFile());
  const running = startNative("engine", program, [String(addresses), file]);
  try {
    const ports = (await running.line()).split(" ");
    return {
      urls: ports.map((port) => `http://127.0.0.1:${port}`),
      pid: running.process.pid ?? 0,
      async stop() {
        running.process.stdin?.end();
        await running.rest();
      },
    };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** The input of `engine.c`: every answer with its name. */
function answersFile(): Buffer {
  const pieces = streamPieces(streamTokens, false);
  const answers: readonly (readonly [string, Buffer])[] = [
    ["/health", sizedAnswer("text/plain", "")],
    ["/v1/models", modelsAnswer],
    ["/metrics", sizedAnswer("text/plain; version=0.0.4", engineMetrics)],
    ["*", chatAnswer],
    ...pieces.slice(0, -1).map((piece) => ["piece", piece] as const),
    ["last", pieces.at(-1)!],
    ["last-usage", streamPieces(streamTokens, true).at(-1)!],
  ];
  return Buffer.concat(answers.flatMap(([name, bytes]) => [Buffer.from(`${name} ${bytes.length}\n`), bytes]));
}
