/**
 * A template that cannot be compiled or rendered: its own `raise_exception`, a value that Python would refuse, or a
 * bound. An engine with the same template refuses the same request (or, at a bound, the router alone gives up), so the
 * caller goes on without tokens.
 */
export class TemplateError extends Error {
  /** Why: the template's own message (`raised`), its syntax, a value it cannot take, or a bound of the renderer. */
  readonly reason: "raised" | "syntax" | "value" | "limit";

  constructor(reason: TemplateError["reason"], message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "TemplateError";
    this.reason = reason;
  }
}

/** The error of a value that Python's Jinja2 would refuse. */
export const valueError = (message: string): TemplateError => new TemplateError("value", message);

/** The error of a template with a construct that Jinja2 does not have, or not there. */
export const unknownConstruct = (what: string): TemplateError =>
  new TemplateError("syntax", `the template has ${what} where Jinja2 knows none`);

/** The error of a bound that was reached. */
export const limitError = (message: string): TemplateError => new TemplateError("limit", message);

/** Turns of all loops and calls of all macros in one rendering. A template that needs more is taken to be endless. */
export const maxSteps = 1_000_000;

/** Characters of one rendering, and of any intermediate string. */
export const maxTextChars = 64 * 1024 * 1024;

/** Macros and recursive loops inside one another. */
export const maxCallDepth = 200;

/** Elements of one `range()`; the bound of Jinja2's sandbox. */
export const maxRangeLength = 100_000;

/** Elements of a list made by repetition or by a filter that fills up. */
export const maxListLength = 1_000_000;

/** Containers inside one another when they are written or compared. */
export const maxValueDepth = 500;

/** Characters of a template's source. */
export const maxSourceChars = 1024 * 1024;
