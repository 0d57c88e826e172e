import { EspalierError } from "@espalier/common";
import { Lexer } from "yaml";

/** Deepest nesting of braces and brackets, and longest run of `-`, `?` and `:` that open blocks on one line. */
const maxNesting = 32;
/** Widest indentation, in columns; blocks cannot nest deeper than they are indented. */
const maxIndentation = 256;

/**
 * Refuses text that nests too deeply for the parser, which is recursive: where it exhausts the stack it can end the
 * process (seen with yaml 2.9 on Node 20 from 500 nested `?` on). The lexer is not recursive.
 *
 * @throws EspalierError `config_invalid`
 */
export function assertShallow(text: string, path: string): void {
  let open = 0;
  let run = 0;
  let isScalar = false;
  for (const token of new Lexer().lex(text)) {
    if (isScalar) {
      // The token before announced this one, whose characters mean nothing.
      isScalar = false;
    } else if (token === "\u001f") {
      isScalar = true;
      run = 0;
    } else if (token === "[" || token === "{") open++;
    else if (token === "]" || token === "}") open--;
    else if (token === "-" || token === "?" || token === ":") run++;
    else if (token === "\n") run = 0;
    const isIndentation = /^ +$/.test(token.slice(0, maxIndentation + 1)) && token.length > maxIndentation;
    if (open > maxNesting || run > maxNesting || isIndentation) {
      throw new EspalierError("config_invalid", `${path}: nests too deeply to be read`);
    }
  }
}
