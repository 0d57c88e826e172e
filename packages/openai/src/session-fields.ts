import type { JsonObject } from "@espalier/json-body";
import type { Endpoint } from "./endpoints.ts";
import { readObject, readString } from "./field-readers.ts";

/** Longest session key that is accepted, in UTF-16 units. */
export const maxSessionKeyLength = 1_024;

/** What a body says about the session it belongs to. `user` is `metadata.user_id` in Anthropic's API. */
export interface SessionFields {
  readonly user: string | undefined;
  readonly session_id: string | undefined;
  readonly prompt_cache_key: string | undefined;
}

/** @throws EspalierError `invalid_type`, or `invalid_value` for a value of more than 1,024 characters */
export function readSessionFields(endpoint: Endpoint, fields: JsonObject): SessionFields {
  const metadata = endpoint.family === "anthropic" ? readObject(fields, "metadata") : undefined;
  return {
    user: metadata
      ? readString(metadata, "user_id", maxSessionKeyLength, "metadata.user_id")
      : readString(fields, "user", maxSessionKeyLength),
    session_id: readString(fields, "session_id", maxSessionKeyLength),
    prompt_cache_key: readString(fields, "prompt_cache_key", maxSessionKeyLength),
  };
}
