/**
 * The shape of the tree that the parser of @huggingface/jinja 0.5 gives. The library does not export its node classes,
 * so what the compiler reads of them is written down here.
 */
export type Node = Statement | Expression;

export type Statement =
  | { readonly type: "Program"; readonly body: readonly Node[] }
  | IfNode
  | ForNode
  | SetNode
  | MacroNode
  | CallBlockNode
  | FilterBlockNode
  | { readonly type: "Break" | "Continue" | "Comment" };

export interface IfNode {
  readonly type: "If";
  readonly test: Expression;
  readonly body: readonly Node[];
  readonly alternate: readonly Node[];
}

export interface ForNode {
  readonly type: "For";
  readonly loopvar: Expression;
  /** A `SelectExpression` stands for `for x in lhs if test`. */
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

export interface CallBlockNode {
  readonly type: "CallStatement";
  readonly call: CallNode;
  readonly callerArgs: readonly Parameter[] | null;
  readonly body: readonly Node[];
}

export interface FilterBlockNode {
  readonly type: "FilterStatement";
  readonly filter: IdentifierNode | CallNode;
  readonly body: readonly Node[];
}

export type Parameter = IdentifierNode | KeywordNode;

export interface IdentifierNode {
  readonly type: "Identifier";
  readonly value: string;
}

export interface KeywordNode {
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

export interface SliceNode {
  readonly type: "SliceExpression";
  readonly start: Expression | undefined;
  readonly stop: Expression | undefined;
  readonly step: Expression | undefined;
}

export interface BinaryNode {
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

export interface SelectNode {
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

/** Visits every node of the tree, parents before children, in no other order. */
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
