import { EspalierError } from "@espalier/core";

/** Path of a value: keys of sections, indexes of lists. */
export type Path = readonly (string | number)[];

export interface Problem {
  readonly path: Path;
  readonly message: string;
}

/** `["engines", 0, "url"]` as text: `engines[0].url`. Keys that are not plain words are quoted. */
export function formatPath(path: Path): string {
  let text = "";
  for (const part of path) {
    if (typeof part === "number") text += `[${part}]`;
    else if (/^[A-Za-z_][\w-]*$/.test(part)) text += text === "" ? part : `.${part}`;
    else text += `[${JSON.stringify(part)}]`;
  }
  return text;
}

/** Most problems that one error lists; the rest are counted. */
const maxListedProblems = 100;

/**
 * One error for all problems, one line each.
 *
 * @param locate where the value at a path was written, such as `espalier.yaml:3:5` or `--listen-port`
 */
export function problemsError(problems: readonly Problem[], locate: (path: Path) => string | undefined): EspalierError {
  const lines = problems.slice(0, maxListedProblems).map(({ path, message }) => {
    const where = locate(path);
    const subject = path.length === 0 ? "" : `${formatPath(path)}: `;
    return `${subject}${message}${where === undefined ? "" : ` (${where})`}`;
  });
  if (problems.length > maxListedProblems) lines.push(`and ${problems.length - maxListedProblems} more`);
  const first = problems[0]?.path ?? [];
  return new EspalierError("config_invalid", lines.join("\n"), first.length > 0 ? { param: formatPath(first) } : {});
}
