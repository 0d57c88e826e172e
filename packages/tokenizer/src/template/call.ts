import { getAttribute } from "./access.ts";
import type { Expression } from "./ast.ts";
import { callDictMethod, isDictMethod } from "./dict-methods.ts";
import { LoopState } from "./loop.ts";
import type { Evaluate, Frame } from "./runtime.ts";
import { stringMethod } from "./string-methods.ts";
import { TemplateError, valueError } from "./template-error.ts";
import { Callable, dictEntries, isDict, iterate, type Keywords, noKeywords, typeName, type Value } from "./values.ts";

export interface CompiledArguments {
  readonly args: (frame: Frame) => readonly Value[];
  readonly keywords: (frame: Frame) => Keywords;
}

const noArguments: readonly Value[] = [];

/** Compiles the arguments of a call, a filter or a test. */
export function compileArguments(
  nodes: readonly Expression[],
  compile: (node: Expression) => Evaluate,
): CompiledArguments {
  const positional: { readonly evaluate: Evaluate; readonly spread: boolean }[] = [];
  const named: { readonly name: string | undefined; readonly evaluate: Evaluate }[] = [];
  for (const node of nodes) {
    if (node.type === "KeywordArgumentExpression") named.push({ name: node.key.value, evaluate: compile(node.value) });
    else if (node.type === "KeywordSpreadExpression") named.push({ name: undefined, evaluate: compile(node.argument) });
    else if (node.type === "SpreadExpression") positional.push({ evaluate: compile(node.argument), spread: true });
    else positional.push({ evaluate: compile(node), spread: false });
  }
  return { args: positionalOf(positional), keywords: keywordsOf(named) };
}

function positionalOf(
  positional: readonly { readonly evaluate: Evaluate; readonly spread: boolean }[],
): (frame: Frame) => readonly Value[] {
  const [first] = positional;
  if (!first) return () => noArguments;
  if (positional.length === 1 && !first.spread) return (frame) => [first.evaluate(frame)];
  return (frame) => {
    const args: Value[] = [];
    for (const { evaluate, spread } of positional) {
      if (spread) args.push(...iterate(evaluate(frame)));
      else args.push(evaluate(frame));
    }
    return args;
  };
}

function keywordsOf(
  named: readonly { readonly name: string | undefined; readonly evaluate: Evaluate }[],
): (frame: Frame) => Keywords {
  if (named.length === 0) return () => noKeywords;
  return (frame) => {
    const keywords = new Map<string, Value>();
    for (const { name, evaluate } of named) {
      const value = evaluate(frame);
      for (const [key, item] of name === undefined ? spreadEntries(value) : [[name, value] as const]) {
        if (keywords.has(key)) throw valueError(`got multiple values for keyword argument '${key}'`);
        keywords.set(key, item);
      }
    }
    return keywords;
  };
}

function spreadEntries(value: Value): (readonly [string, Value])[] {
  if (!isDict(value)) throw valueError(`argument after ** must be a mapping, not ${typeName(value)}`);
  return dictEntries(value).map(([key, item]) => {
    if (typeof key !== "string") throw valueError("keywords must be strings");
    return [key, item] as const;
  });
}

/**
 * Calls a value.
 *
 * @throws TemplateError when it cannot be called; `what` names it then
 */
export function callValue(callee: Value, args: readonly Value[], keywords: Keywords, what: string): Value {
  if (callee instanceof Callable) return callee.call(args, keywords);
  if (callee instanceof LoopState && callee.recurse) return callee.recurse(args[0]);
  if (callee === undefined) throw valueError(`'${what}' is undefined`);
  throw new TemplateError("value", `'${typeName(callee)}' object is not callable`);
}

/** Compiles `object.name(...)`, finding the method of a string once. */
export function compileMethodCall(object: Evaluate, name: string, { args, keywords }: CompiledArguments): Evaluate {
  const ofString = stringMethod(name);
  const ofDict = isDictMethod(name);
  return (frame) => {
    const value = object(frame);
    if (typeof value === "string" && ofString) return ofString(value, args(frame), keywords(frame));
    if (ofDict && isDict(value)) return callDictMethod(value, name, args(frame), keywords(frame));
    return callValue(getAttribute(value, name), args(frame), keywords(frame), name);
  };
}
