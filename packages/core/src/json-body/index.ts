/**
 * JSON bodies read in place. The router needs the model's name and a hash of the prompt from a body of, say, 48 KB. The
 * body becomes neither text nor objects: one pass finds every value and checks the grammar, and strings are copied
 * straight from the body.
 */
export {
  forbiddenKey,
  isJsonObject,
  JsonBody,
  type JsonFault,
  type JsonObject,
  parseJson,
  scanBody,
} from "./json-body.ts";
