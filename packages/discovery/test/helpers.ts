import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { asEngineId, type EngineSpec, EspalierError, type Scheduler, systemScheduler } from "@espalier/common";
import type { SourceObserver } from "@espalier/discovery";
import { onTestFinished } from "vitest";

export const engine = (id: string, url = `http://${id}:8000`): EngineSpec => ({
  id: asEngineId(id),
  url,
  models: [],
  role: "both",
  weight: 1,
  labels: {},
});

/** A parser of lists like `a b c`; a question mark is a syntax error. */
export function parseIds(text: string, path: string): readonly EngineSpec[] {
  if (text.includes("?")) throw new EspalierError("config_invalid", `${path}: question mark`);
  return text
    .split(/\s+/)
    .filter((id) => id !== "")
    .map((id) => engine(id));
}

const idsOf = (specs: readonly EngineSpec[]): string => specs.map(({ id }) => id).join(" ");

/** Keeps each list as its ids, `a b c`, and every error. */
export function createRecorder(): SourceObserver & { readonly lists: string[]; readonly errors: EspalierError[] } {
  const lists: string[] = [];
  const errors: EspalierError[] = [];
  return {
    lists,
    errors,
    onSpecs: (specs) => lists.push(idsOf(specs)),
    onError: (error) => errors.push(error),
  };
}

/** Real timers without the periodic ones, so that only the watcher can notice a change. */
export const withoutPolling: Scheduler = { after: systemScheduler.after, every: () => () => {} };

/** A folder that is removed when the test ends. */
export async function createFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "espalier-discovery-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

/** What a promise is rejected with. */
export async function rejectionOf(promise: Promise<unknown>): Promise<EspalierError> {
  const outcome = await promise.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (outcome instanceof EspalierError) return outcome;
  throw new Error("not rejected with an EspalierError", { cause: outcome });
}
