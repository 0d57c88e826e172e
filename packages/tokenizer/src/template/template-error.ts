/**
 * A template that cannot be compiled or rendered: its own `raise_exception`, a value that Python would refuse, a
 * construct that the renderer lacks, or a bound. An engine with the same template refuses the same request, except for
 * the last two, where only the router gives up. So the caller continues without tokens.
 */
export class TemplateError extends Error {
  /**
   * The cause: the template's own message (`raised`), its syntax, an unacceptable value, a construct that the renderer
   * lacks, or a bound of the renderer.
   */
  readonly reason: "raised" | "syntax" | "value" | "lacking" | "limit";

  constructor(reason: TemplateError["reason"], message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "TemplateError";
    this.reason = reason;
  }
}

/** The error of a value that Python's Jinja2 would refuse. */
export const valueError = (message: string): TemplateError => new TemplateError("value", message);

/** The error of a template with a construct that Jinja2 lacks or does not allow there. */
export const unknownConstruct = (what: string): TemplateError =>
  new TemplateError("syntax", `Jinja2 does not allow ${what} here`);

/** The error of a construct that Jinja2 has and the renderer lacks, since no chat template needs it. */
export const lacking = (what: string): TemplateError =>
  new TemplateError("lacking", `the renderer does not support ${what}`);

/** The error at a bound. */
export const limitError = (message: string): TemplateError => new TemplateError("limit", message);

/**
 * Most turns of all loops and calls of all macros in one rendering. A template that needs more is considered endless.
 */
export const maxSteps = 1_000_000;

/** Most characters of one rendering, and of any intermediate string. */
export const maxTextChars = 64 * 1024 * 1024;

/** Most nested macros. */
export const maxCallDepth = 200;

/** Most elements of one `range()`; the bound of Jinja2's sandbox. */
export const maxRangeLength = 100_000;

/** Most elements of a list made by repetition. */
export const maxListLength = 1_000_000;

/** Most nested containers when writing or comparing. */
export const maxValueDepth = 500;

/** Most characters of a template's source. */
export const maxSourceChars = 1024 * 1024;
