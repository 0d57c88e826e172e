import { checkPortOf } from "./places.ts";
import { type Problem, problemsError } from "./problems.ts";
import { isSection, readTree } from "./read-tree.ts";
import { seedsInFile } from "./schema/mesh.ts";
import { parseYaml } from "./yaml-document.ts";

/**
 * Reads a file of seeds: a list of `HOST:PORT`, or a section with the one key `seeds`. YAML or JSON; variables are not
 * filled in.
 *
 * @param path names the file in messages
 * @throws EspalierError `config_invalid` with every problem on a line of its own
 */
export function parseSeedsFile(text: string, path: string): readonly string[] {
  const { value, locate } = parseYaml(text, path);
  const isWrapped = isSection(value) && Object.keys(value).every((key) => key === "seeds");
  const base = isWrapped ? ["seeds"] : [];
  const problems: Problem[] = [];
  const written = isWrapped ? value.seeds : value;
  const sources = { problems, writtenText: new Map(), unfilled: new Set<string>() };
  const seeds = readTree(seedsInFile, written, base, sources) as readonly string[];
  if (problems.length === 0) problems.push(...seeds.flatMap((seed, at) => checkPortOf(seed, [...base, at])));
  if (problems.length > 0) throw problemsError(problems, locate);
  return seeds;
}
