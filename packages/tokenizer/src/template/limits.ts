/** Turns of all loops and calls of all macros in one rendering. A template that needs more is taken to be endless. */
export const maxSteps = 1_000_000;

/** Characters of one rendering, and of any string made on the way. */
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
