import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type EngineSimOptions, startEngineSim } from "@espalier/engine-sim";
import { onTestFinished } from "vitest";

/** Writes a file that is gone after the test, and gives its path. */
export function temporaryFile(name: string, content: string): string {
  const folder = mkdtempSync(join(tmpdir(), "espalier-e2e-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

/** Simulated engines that stop with the test, by their URLs. */
export async function engines(options: EngineSimOptions): Promise<readonly string[]> {
  const sim = await startEngineSim({ models: ["tiny"], ...options });
  onTestFinished(() => sim.stop());
  return sim.engines.map(({ url }) => url);
}
