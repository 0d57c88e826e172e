import { describe, expect, test } from "vitest";
import { compileTemplate } from "../../src/template/compile.ts";
import { createGlobals } from "../../src/template/globals.ts";
import { parseTemplate } from "../../src/template/parse.ts";
import { TemplateError } from "../../src/template/template-error.ts";
import { goldenClock } from "./golden.ts";

type Variables = Readonly<Record<string, unknown>>;

/** What became of a template: its text, or why there is none. */
export type Outcome =
  | { readonly text: string }
  | { readonly reason: TemplateError["reason"]; readonly message: string };

export function outcomeOf(source: string, variables: Variables = {}): Outcome {
  try {
    return { text: compileTemplate(parseTemplate(source), createGlobals(goldenClock))(variables) };
  } catch (error) {
    if (!(error instanceof TemplateError)) throw error;
    return { reason: error.reason, message: error.message };
  }
}

/** Tests that templates render to these texts, which are those of Python's Jinja2 3.1 in the mode of transformers. */
export function shows(
  about: string,
  rows: readonly (readonly [source: string, text: string])[],
  variables: Variables = {},
): void {
  describe(about, () => {
    test.each(rows)("%s", (source, text) => {
      expect(outcomeOf(source, variables)).toEqual({ text });
    });
  });
}

/** Tests that templates which Python refuses too are refused for their values, in these words. */
export function refuses(
  about: string,
  rows: readonly (readonly [source: string, message: string])[],
  variables: Variables = {},
): void {
  describe(about, () => {
    test.each(rows)("%s", (source, message) => {
      expect(outcomeOf(source, variables)).toEqual({ reason: "value", message });
    });
  });
}

/** Tests that sources are no templates, as for Python. */
export function cannotBeRead(about: string, sources: readonly string[]): void {
  test.each(sources)(`${about}: %s`, (source) => {
    expect(outcomeOf(source)).toMatchObject({ reason: "syntax" });
  });
}
