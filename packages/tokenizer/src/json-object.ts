import { EspalierError } from "@espalier/core";

/** A JSON object whose members have not been checked. */
export type JsonObject = { readonly [key: string]: unknown };

/**
 * @param where the text's name in error messages
 * @throws EspalierError `config_invalid`
 */
export function parseJsonObject(text: string, where: string): JsonObject {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new EspalierError("config_invalid", `${where} is not valid JSON: ${(error as Error).message}`, {
      cause: error,
    });
  }
  if (!isJsonObject(value)) throw new EspalierError("config_invalid", `${where} is not a JSON object`);
  return value;
}

export const isJsonObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);
