import { parse, tokenize } from "@huggingface/jinja";
import { lacking, limitError, maxSourceChars, TemplateError } from "./template-error.ts";

/**
 * The shape of the tree that the parser of @huggingface/jinja 0.5 returns. The library does not export its node
 * classes, so this declares what the compiler reads of them.
 */
export type Node = Statement | Expression;

type Statement =
  | { readonly type: "Program"; readonly body: readonly Node[] }
  | IfNode
  | ForNode
  | SetNode
  | MacroNode
  | FilterBlockNode
  | { readonly type: "CallStatement" | "Break" | "Continue" | "Comment" };

interface IfNode {
  readonly type: "If";
  readonly test: Expression;
  readonly body: readonly Node[];
  readonly alternate: readonly Node[];
}

export interface ForNode {
  readonly type: "For";
  readonly loopvar: Expression;
  /** A `SelectExpression` means `for x in lhs if test`. */
  readonly iterable: Expression;
  readonly body: readonly Node[];
  readonly defaultBlock: readonly Node[];
}

export interface SetNode {
  readonly type: "Set";
  readonly assignee: Expression;
  /** Null for a block, whose output is the value. */
  readonly value: Expression | null;
  readonly body: readonly Node[];
}

export interface MacroNode {
  readonly type: "Macro";
  readonly name: IdentifierNode;
  readonly args: readonly Parameter[];
  readonly body: readonly Node[];
}

interface FilterBlockNode {
  readonly type: "FilterStatement";
  readonly filter: IdentifierNode | CallNode;
  readonly body: readonly Node[];
}

type Parameter = IdentifierNode | KeywordNode;

export interface IdentifierNode {
  readonly type: "Identifier";
  readonly value: string;
}

interface KeywordNode {
  readonly type: "KeywordArgumentExpression";
  readonly key: IdentifierNode;
  readonly value: Expression;
}

export interface CallNode {
  readonly type: "CallExpression";
  readonly callee: Expression;
  readonly args: readonly Expression[];
}

export interface MemberNode {
  readonly type: "MemberExpression";
  readonly object: Expression;
  readonly property: Expression;
  readonly computed: boolean;
}

interface SliceNode {
  readonly type: "SliceExpression";
  readonly start: Expression | undefined;
  readonly stop: Expression | undefined;
  readonly step: Expression | undefined;
}

interface BinaryNode {
  readonly type: "BinaryExpression";
  readonly operator: { readonly value: string };
  readonly left: Expression;
  readonly right: Expression;
}

export interface FilterNode {
  readonly type: "FilterExpression";
  readonly operand: Expression;
  readonly filter: IdentifierNode | CallNode;
}

export interface TestNode {
  readonly type: "TestExpression";
  readonly operand: Expression;
  readonly negate: boolean;
  readonly test: IdentifierNode;
}

interface SelectNode {
  readonly type: "SelectExpression";
  readonly lhs: Expression;
  readonly test: Expression;
}

export type Expression =
  | IdentifierNode
  | KeywordNode
  | CallNode
  | MemberNode
  | SliceNode
  | BinaryNode
  | FilterNode
  | TestNode
  | SelectNode
  | { readonly type: "StringLiteral"; readonly value: string }
  | { readonly type: "IntegerLiteral" | "FloatLiteral"; readonly value: number }
  | { readonly type: "ArrayLiteral" | "TupleLiteral"; readonly value: readonly Expression[] }
  | { readonly type: "ObjectLiteral"; readonly value: ReadonlyMap<Expression, Expression> }
  | { readonly type: "UnaryExpression"; readonly operator: { readonly value: string }; readonly argument: Expression }
  | {
      readonly type: "Ternary";
      readonly condition: Expression;
      readonly trueExpr: Expression;
      readonly falseExpr: Expression;
    }
  | { readonly type: "SpreadExpression" | "KeywordSpreadExpression"; readonly argument: Expression };

/** Visits every node of the tree, parents before children; the order is otherwise unspecified. */
export function walkNodes(root: Node, visit: (node: Node) => void): void {
  visit(root);
  for (const [key, child] of Object.entries(root)) {
    // An operator is a token, which has a type too.
    if (key !== "operator") walkValue(child, visit);
  }
}

function walkValue(value: unknown, visit: (node: Node) => void): void {
  if (Array.isArray(value)) {
    for (const item of value) walkValue(item, visit);
  } else if (value instanceof Map) {
    for (const [key, item] of value) {
      walkValue(key, visit);
      walkValue(item, visit);
    }
  } else if (typeof value === "object" && value !== null && "type" in value) {
    walkNodes(value as Node, visit);
  }
}

type Token = ReturnType<typeof tokenize>[number];

/** Marks that make tokens look like filters to the parser, which lacks tests with arguments. */
const testMark = "is ";
const negatedMark = "is not ";

/**
 * Parses a template with the library's lexer and parser, in the mode of transformers (`trim_blocks`, `lstrip_blocks`,
 * loop controls, the `generation` tag). Rewrites what Jinja2 has and the parser lacks first: raw blocks become strings, and
 * tests with arguments become filters with names that no template can write.
 *
 * @throws TemplateError when the source is not a template that the parser reads
 */
export function parseTemplate(source: string): Node {
  if (source.length > maxSourceChars) throw limitError(`the template is longer than ${maxSourceChars} characters`);
  try {
    // Jinja2 reads all line ends as \n.
    const text = withoutGeneration(withoutRaw(source.replace(/\r\n?/g, "\n")));
    const tokens = tokenize(text, { lstrip_blocks: true, trim_blocks: true });
    const program = parse(markTests(tokens)) as unknown as Node;
    refuseChains(tokens);
    return program;
  } catch (error) {
    if (error instanceof TemplateError) throw error;
    const message = error instanceof Error ? error.message : String(error);
    throw new TemplateError("syntax", `the template cannot be read: ${message}`, { cause: error });
  }
}

/**
 * A raw block writes its text as it stands, as a filter block around a string does. The blanks before the end tag are
 * stripped here, since the string hides them.
 */
function withoutRaw(source: string): string {
  return source.replace(rawBlock, (_, before: string, after: string, body: string, left: string, right: string) => {
    const start = after === "-" ? body.trimStart() : body;
    const text = left === "-" ? start.trimEnd() : start.replace(/(\n)[ \t]+$/, "$1");
    // The lexer looks for tags inside strings too.
    const parts = text.split(/(?<=\{)|(?=\})/).map((part) => `'${part.replace(/[\\']/g, "\\$&")}'`);
    return `{%${before} filter safe %}{{ ${parts.join(" ~ ")} }}{% endfilter ${right}%}`;
  });
}

const rawBlock = /\{%(-?)\s*raw\s*(-?)%\}(.*?)\{%(-?)\s*endraw\s*(-?)%\}/gs;

/**
 * Transformers' `generation` block writes its body unchanged, in a scope of its own, as a filter block does. (The
 * library removes the tags, so that the blanks around them are stripped according to their neighbours.)
 */
function withoutGeneration(source: string): string {
  return source.replace(/\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}/g, (_, left: string, end: string, right: string) =>
    end === undefined ? `{%${left} filter safe ${right}%}` : `{%${left} endfilter ${right}%}`,
  );
}

/** The test that a marked filter represents. */
export function testOfFilterName(name: string): { readonly name: string; readonly negate: boolean } | undefined {
  if (name.startsWith(negatedMark)) return { name: name.slice(negatedMark.length), negate: true };
  return name.startsWith(testMark) ? { name: name.slice(testMark.length), negate: false } : undefined;
}

const isName = (token: Token | undefined, name: string): boolean =>
  token?.type === "Identifier" && token.value === name;

/** Words that end a comparison, as commas and the like do. */
const afterComparison = new Set(["and", "or", "if", "else", ",", ":", "="]);

/** In Python `1 < x < 9` compares twice. The parser compares the first result. */
function refuseChains(tokens: readonly Token[]): void {
  const compared = [false];
  for (const [index, token] of tokens.entries()) {
    const last = compared.length - 1;
    if (token.type.startsWith("Open")) compared.push(false);
    else if (token.type.startsWith("Close")) compared.pop();
    else if (token.type === "ComparisonBinaryOperator" || (isName(token, "in") && tokens[index - 1]?.type !== "Dot")) {
      if (compared[last]) throw lacking("chained comparisons");
      compared[last] = true;
    } else if (token.type !== "StringLiteral" && afterComparison.has(token.value)) compared[last] = false;
  }
}

/** Words that may follow a test without being its argument. */
const afterTest = new Set(["and", "or", "not", "is", "in", "if", "else", "recursive"]);
const opening = new Set(["OpenSquareBracket", "OpenCurlyBracket"]);

function startsArgument(token: Token | undefined): boolean {
  if (!token) return false;
  if (token.type === "Identifier") return !afterTest.has(token.value);
  return token.type === "StringLiteral" || token.type === "NumericLiteral" || opening.has(token.type);
}

/** `x is test(a)` and `x is test a` become `x | "is test"(a)`. */
function markTests(tokens: readonly Token[]): Token[] {
  const marked: Token[] = [];
  const like = (token: Token, value: string, type: Token["type"]): Token => ({ ...token, value, type });
  for (let index = 0; index < tokens.length; index++) {
    const token = tokens[index]!;
    const negate = isName(tokens[index + 1], "not");
    const name = tokens[index + (negate ? 2 : 1)];
    const next = tokens[index + (negate ? 3 : 2)];
    const isTest = isName(token, "is") && name?.type === "Identifier" && marked.at(-1)?.type !== "Dot";
    if (!isTest || !(next?.type === "OpenParen" || startsArgument(next))) {
      marked.push(token);
      continue;
    }
    marked.push(like(token, "|", "Pipe"), like(token, (negate ? negatedMark : testMark) + name.value, "Identifier"));
    index += negate ? 2 : 1;
    if (next.type === "OpenParen") continue;
    const end = argumentEnd(tokens, index + 1);
    marked.push(
      like(token, "(", "OpenParen"),
      ...markTests(tokens.slice(index + 1, end)),
      like(token, ")", "CloseParen"),
    );
    index = end - 1;
  }
  return marked;
}

/** The end of a test's argument without parentheses: one literal, or a name with its members and calls. */
function argumentEnd(tokens: readonly Token[], start: number): number {
  let index = opening.has(tokens[start]!.type) ? closing(tokens, start) : start + 1;
  for (;;) {
    const type = tokens[index]?.type;
    if (type === "Dot") index += 2;
    else if (type === "OpenSquareBracket" || type === "OpenParen") index = closing(tokens, index);
    else return index;
  }
}

/** The index after the bracket that closes the one at `start`. */
function closing(tokens: readonly Token[], start: number): number {
  let depth = 0;
  for (let index = start; index < tokens.length; index++) {
    const type = tokens[index]!.type;
    if (type.startsWith("Open")) depth++;
    else if (type.startsWith("Close") && --depth === 0) return index + 1;
  }
  return tokens.length;
}
