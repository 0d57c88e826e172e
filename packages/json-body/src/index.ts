/**
 * JSON bodies read where they lie. A body of 48 KB of which a router needs the model's name and a hash of the prompt
 * becomes neither text nor objects: one pass finds every value and checks the grammar, and strings go from the body to
 * where they are wanted.
 */
export { JsonBody, type JsonKind, type JsonObject } from "./json-body.ts";
export { forbiddenKey, type JsonFault, scanBody } from "./scan-body.ts";
