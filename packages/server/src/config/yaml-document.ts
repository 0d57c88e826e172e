import { EspalierError } from "@espalier/core";
import { type Document, isMap, isScalar, isSeq, Lexer, LineCounter, type Node, parseDocument, visit } from "yaml";
import type { Path } from "./problems.ts";

/** Largest file that is read, in UTF-16 code units. */
const maxFileLength = 4 * 1024 * 1024;

/** Most mistakes of one file that are listed. */
const maxListedMistakes = 20;

/** A parsed file, and where its values stand in it. */
export interface YamlDocument {
  /** Plain data; undefined when the file is empty. */
  readonly value: unknown;
  /** `FILE:LINE:COLUMN` of the key or list element at a path, or of the nearest enclosing one. */
  locate(path: Path): string | undefined;
}

/**
 * Reads YAML 1.2, which includes JSON.
 *
 * @param path names the file in messages
 * @throws EspalierError `config_invalid` with the line and column of every syntax error; a duplicate key is one
 */
export function parseYaml(text: string, path: string): YamlDocument {
  if (text.length > maxFileLength) {
    throw new EspalierError("config_invalid", `${path}: ${text.length} characters are more than ${maxFileLength}`);
  }
  assertShallow(text, path);
  const lineCounter = new LineCounter();
  // The parser's own search for duplicate keys takes seconds for a section of 10,000 keys.
  const document = parseDocument(text, { lineCounter, prettyErrors: false, logLevel: "error", uniqueKeys: false });
  const at = (offset: number): string => {
    const { line, col } = lineCounter.linePos(offset);
    return `${path}:${line}:${col}`;
  };
  const lines = [...document.errors, ...document.warnings].map(
    ({ pos, message }) => `${at(pos[0])}: ${message}${hintAt(text, pos[0])}`,
  );
  lines.push(...mistakenKeys(document).map(({ message, offset }) => `${at(offset)}: ${message}`));
  if (lines.length > 0) throw new EspalierError("config_invalid", lines.slice(0, maxListedMistakes).join("\n"));
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

interface KeyMistake {
  readonly message: string;
  readonly offset: number;
}

/** Duplicate keys, and keys that are not plain text: as text, nested ones grow without bound. */
function mistakenKeys(document: Document): KeyMistake[] {
  const mistakes: KeyMistake[] = [];
  visit(document, {
    Map(_, { items }) {
      const names = new Set<string>();
      for (const { key } of items) {
        const offset = (key as Node | null)?.range?.[0] ?? 0;
        if (!isScalar(key)) {
          mistakes.push({ message: "a key must be plain text", offset });
          continue;
        }
        const name = String(key.value);
        if (names.has(name)) mistakes.push({ message: `${name} appears twice`, offset });
        names.add(name);
      }
    },
  });
  return mistakes;
}

/** The parser refuses aliases that multiply without bound. */
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

/** In `{ key: ${NAME} }` the parser takes the brace for another mapping, and its message does not help. */
function hintAt(text: string, offset: number): string {
  const start = text.lastIndexOf("\n", offset - 1) + 1;
  const end = text.indexOf("\n", offset);
  const line = text.slice(start, end === -1 ? undefined : end);
  return /[{[,].*[^"']\$\{/.test(line) ? `; inside braces or brackets, write "\${NAME}" in quotes` : "";
}

/** Deepest nesting of braces and brackets, and longest run of `-`, `?` and `:` that open blocks on one line. */
const maxNesting = 32;
/** Widest indentation, in columns; blocks cannot nest deeper than they are indented. */
const maxIndentation = 256;

/**
 * Refuses text that nests too deeply for the parser, which is recursive: exhausting the stack can end the process (seen with
 * yaml 2.9 on Node 20 from 500 nested `?` on). The lexer is not recursive.
 *
 * @throws EspalierError `config_invalid`
 */
function assertShallow(text: string, path: string): void {
  let open = 0;
  let run = 0;
  let isScalar = false;
  for (const token of new Lexer().lex(text)) {
    if (isScalar) {
      // The previous token announced this scalar, whose characters have no meaning.
      isScalar = false;
    } else if (token === "\u001f") {
      isScalar = true;
      run = 0;
    } else if (token === "[" || token === "{") open++;
    else if (token === "]" || token === "}") open--;
    else if (token === "-" || token === "?" || token === ":") run++;
    else if (token === "\n" || token === "," || /^["']/.test(token)) run = 0;
    const isIndentation = /^ +$/.test(token.slice(0, maxIndentation + 1)) && token.length > maxIndentation;
    if (open > maxNesting || run > maxNesting || isIndentation) {
      throw new EspalierError("config_invalid", `${path}: nests too deeply to be read`);
    }
  }
}
