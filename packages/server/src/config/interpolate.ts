import { formatPath, type Path, type Problem } from "./problems.ts";

export type Environment = Readonly<Record<string, string | undefined>>;

/** Returns the text of a file. What it throws is reported as the reason. */
export type ReadText = (path: string) => string;

interface Interpolated {
  readonly value: unknown;
  /** The text before interpolation, by path: shown instead of the value, which may be secret. */
  readonly writtenText: ReadonlyMap<string, string>;
  /** Every variable that the file refers to. */
  readonly variables: ReadonlySet<string>;
  readonly problems: readonly Problem[];
  /** Paths of the strings that `problems` are about. */
  readonly unfilled: ReadonlySet<string>;
}

const filePrefix = "file:";

function noFiles(): string {
  throw new Error("no files are read here");
}

/** Deepest nesting of a file. The schema needs no more than 6. */
const maxDepth = 16;

/**
 * Interpolates `${NAME}` and `${NAME:-default}` in every string of a tree. The default is used if the variable is unset or
 * empty, as in a shell; `$${` is a literal `${`. `${file:PATH}` is replaced by the text of a file, without trailing line
 * breaks, as for mounted secrets. The replacement is not interpolated again.
 */
export function interpolate(tree: unknown, env: Environment, readText: ReadText = noFiles): Interpolated {
  const writtenText = new Map<string, string>();
  const variables = new Set<string>();
  const problems: Problem[] = [];

  const fileText = (name: string, path: Path): string => {
    try {
      return readText(name).replace(/[\r\n]+$/, "");
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      problems.push({ path, message: `the file ${name} cannot be read: ${reason}` });
      return "";
    }
  };
  const fill = (text: string, path: Path): string => {
    const filled = text.replace(/\$\$\{|\$\{([^}]*)\}?/g, (found, inside: string | undefined) => {
      if (inside === undefined) return "${";
      if (inside.startsWith(filePrefix) && inside.length > filePrefix.length && found.endsWith("}")) {
        return fileText(inside.slice(filePrefix.length), path);
      }
      const [, name, fallback] = /^([A-Za-z_]\w*)(?::-(.*))?$/s.exec(inside) ?? [];
      if (name === undefined || !found.endsWith("}")) {
        problems.push({
          path,
          message: `${found} is not \${NAME}, \${NAME:-default} or \${file:PATH}; write $\${ for a literal \${`,
        });
        return found;
      }
      variables.add(name);
      const value = env[name];
      if (fallback !== undefined) return value === undefined || value === "" ? fallback : value;
      if (value === undefined) problems.push({ path, message: `the environment variable ${name} is not set` });
      return value ?? "";
    });
    if (filled !== text) writtenText.set(formatPath(path), text);
    return filled;
  };
  const walk = (value: unknown, path: Path): unknown => {
    if (typeof value === "string") return value.includes("${") ? fill(value, path) : value;
    if (typeof value !== "object" || value === null) return value;
    if (path.length === maxDepth) {
      problems.push({ path, message: `nests deeper than ${maxDepth} levels` });
      return undefined;
    }
    if (Array.isArray(value)) return value.map((item, at) => walk(item, [...path, at]));
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, walk(item, [...path, key])]));
  };
  const value = walk(tree, []);
  return { value, writtenText, variables, problems, unfilled: new Set(problems.map(({ path }) => formatPath(path))) };
}
