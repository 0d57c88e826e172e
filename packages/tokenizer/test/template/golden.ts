import { readdirSync, readFileSync } from "node:fs";
import { Template } from "@huggingface/jinja";
import { compileTemplate } from "../../src/template/compile.ts";
import { createGlobals } from "../../src/template/globals.ts";
import { parseTemplate } from "../../src/template/parse.ts";
import { TemplateError } from "../../src/template/template-error.ts";

/** What Python's Jinja2 gave: text, or an error of the template (`raised`) or of a value. */
export interface PythonResult {
  readonly expected?: string;
  readonly error?: "raised" | "value";
  readonly message?: string;
}

export interface FamilyCase extends PythonResult {
  readonly template: string;
  readonly conversation: string;
}

export interface FeatureCase extends PythonResult {
  readonly about?: string;
  readonly source: string;
  readonly variables?: Readonly<Record<string, unknown>>;
}

export interface GoldenConversation {
  readonly messages: readonly unknown[];
  readonly tools?: readonly unknown[];
  readonly documents?: readonly unknown[];
  readonly variables?: Readonly<Record<string, unknown>>;
  readonly add_generation_prompt?: boolean;
}

const folder = new URL("./golden/", import.meta.url);

export const readGolden = (name: string): unknown => JSON.parse(readFileSync(new URL(name, folder), "utf8"));

export const readTemplate = (name: string): string => readFileSync(new URL(`templates/${name}.jinja`, folder), "utf8");

export const templateNames: readonly string[] = readdirSync(new URL("templates/", folder)).map((file) =>
  file.replace(/\.jinja$/, ""),
);

/** The moment at which the golden cases were made, as UTC. */
export const goldenClock = { nowMs: () => 0, wallMs: () => Date.UTC(2026, 2, 5, 7, 8, 9) };

export const goldenTokens = { bos_token: "<s>", eos_token: "</s>" };

/** Renders with the compiler and gives a result of the same shape as Python's. */
export function renderCompiled(source: string, variables: Readonly<Record<string, unknown>> = {}): PythonResult {
  return resultOf(() => compileTemplate(parseTemplate(source), createGlobals(goldenClock))(variables));
}

/** What the interpreter of the library renders; undefined when it refuses. */
export function renderInterpreted(
  source: string,
  variables: Readonly<Record<string, unknown>> = {},
): string | undefined {
  try {
    return new Template(source).render({ ...variables });
  } catch {
    return undefined;
  }
}

function resultOf(render: () => string): PythonResult {
  try {
    return { expected: render() };
  } catch (error) {
    if (error instanceof TemplateError && error.reason === "raised") return { error: "raised", message: error.message };
    if (error instanceof TemplateError && error.reason !== "syntax") return { error: "value", message: error.message };
    throw error;
  }
}

/** The variables that transformers gives to a template for a conversation. */
export function variablesOf(conversation: GoldenConversation): Record<string, unknown> {
  return {
    ...goldenTokens,
    ...conversation.variables,
    messages: conversation.messages,
    tools: conversation.tools ?? null,
    documents: conversation.documents ?? null,
    add_generation_prompt: conversation.add_generation_prompt ?? true,
  };
}
