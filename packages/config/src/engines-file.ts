import type { EngineSpec } from "@espalier/common";
import { checkEngines, compileEngines } from "./engine-specs.ts";
import { type Problem, problemsError } from "./problems.ts";
import { isSection, readTree } from "./read-tree.ts";
import type { ConfigTree } from "./schema/config-schema.ts";
import { engines } from "./schema/engines.ts";
import { parseYaml } from "./yaml-document.ts";

/**
 * Reads a file of engines: a list as under `engines` in the configuration, or a section with that one key. YAML or
 * JSON; variables are not filled in.
 *
 * @param path names the file in messages
 * @throws EspalierError `config_invalid` with every problem on a line of its own
 */
export function parseEnginesFile(text: string, path: string): readonly EngineSpec[] {
  const { value, locate } = parseYaml(text, path);
  const isWrapped = isSection(value) && Object.keys(value).every((key) => key === "engines");
  const base = isWrapped ? ["engines"] : [];
  const problems: Problem[] = [];
  const written = isWrapped ? value.engines : value;
  const tree = readTree(engines, written, base, {
    problems,
    writtenText: new Map(),
    unfilled: new Set(),
  }) as ConfigTree["engines"];
  if (problems.length === 0) problems.push(...checkEngines(tree, base));
  if (problems.length > 0) throw problemsError(problems, locate);
  return compileEngines(tree);
}
