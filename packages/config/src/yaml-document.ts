import { EspalierError } from "@espalier/common";
import { isMap, isScalar, isSeq, LineCounter, type Node, parseDocument } from "yaml";
import type { Path } from "./problems.ts";
import { assertShallow } from "./yaml-depth.ts";

/** Largest file that is read, in UTF-16 code units. */
export const maxFileLength = 4 * 1024 * 1024;

export interface YamlDocument {
  /** Plain data; undefined when the file is empty. */
  readonly value: unknown;
  /** `FILE:LINE:COLUMN` of the key or list element at a path, or of the nearest one around it. */
  locate(path: Path): string | undefined;
}

/**
 * Reads YAML 1.2, of which JSON is a part.
 *
 * @param path names the file in messages
 * @throws EspalierError `config_invalid` with the line and column of every syntax error; keys that stand twice are one
 */
export function parseYaml(text: string, path: string): YamlDocument {
  if (text.length > maxFileLength) {
    throw new EspalierError("config_invalid", `${path}: ${text.length} characters are more than ${maxFileLength}`);
  }
  assertShallow(text, path);
  const lineCounter = new LineCounter();
  const document = parseDocument(text, { lineCounter, prettyErrors: false, logLevel: "error" });
  const at = (offset: number): string => {
    const { line, col } = lineCounter.linePos(offset);
    return `${path}:${line}:${col}`;
  };
  const mistakes = [...document.errors, ...document.warnings];
  if (mistakes.length > 0) {
    const lines = mistakes.map(({ pos, message }) => `${at(pos[0])}: ${message}${hintAt(text, pos[0])}`);
    throw new EspalierError("config_invalid", lines.slice(0, 20).join("\n"));
  }
  return {
    value: readValue(() => document.toJS(), path),
    locate(wanted) {
      let node: unknown = document.contents;
      let offset: number | undefined;
      for (const part of wanted) {
        const step = stepInto(node, part);
        if (!step) break;
        offset = step.offset ?? offset;
        node = step.node;
      }
      return offset === undefined ? undefined : at(offset);
    },
  };
}

/** Aliases that multiply beyond measure are refused by the parser. */
function readValue(read: () => unknown, path: string): unknown {
  try {
    return read() ?? undefined;
  } catch (error) {
    throw new EspalierError("config_invalid", `${path}: ${error instanceof Error ? error.message : String(error)}`);
  }
}

function stepInto(node: unknown, part: string | number): { node: unknown; offset: number | undefined } | undefined {
  if (isMap(node)) {
    const pair = node.items.find(({ key }) => isScalar(key) && String(key.value) === part);
    return pair && { node: pair.value, offset: (pair.key as Node).range?.[0] };
  }
  if (isSeq(node) && typeof part === "number") {
    const item = node.items[part] as Node | undefined;
    return item && { node: item, offset: item.range?.[0] };
  }
  return undefined;
}

/** In `{ key: ${NAME} }` the parser takes the brace for the start of another mapping, and its message does not help. */
function hintAt(text: string, offset: number): string {
  const start = text.lastIndexOf("\n", offset - 1) + 1;
  const end = text.indexOf("\n", offset);
  const line = text.slice(start, end === -1 ? undefined : end);
  return /[{[,].*[^"']\$\{/.test(line) ? `; inside braces or brackets, write "\${NAME}" in quotes` : "";
}
