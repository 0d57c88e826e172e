import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const repository = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "..");

/**
 * The path of a file or folder under `shared/`, which stands beside the repository where real traces and real
 * engines' captures are at hand. `ESPALIER_SHARED` names another place.
 *
 * @returns the path, or undefined (after saying so in one line) when it is absent, so that the test can be skipped
 */
export function sharedPath(...segments: string[]): string | undefined {
  const path = join(process.env.ESPALIER_SHARED ?? join(repository, "..", "shared"), ...segments);
  if (existsSync(path)) return path;
  process.stderr.write(`NOT RUN: tests that need shared/${segments.join("/")}, which is absent\n`);
  return undefined;
}
