import { EspalierError, isJsonObject, type JsonObject } from "@espalier/core";

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
