import { createHash } from "node:crypto";
import type { JsonObject } from "@espalier/core";

/** An image, audio or video of a chat, as far as an engine's cache depends on it. */
export interface MediaSource {
  /** The client's own identifier (`uuid`), which replaces the content. */
  readonly uuid: string | undefined;
  /** A URL, or encoded bytes; undefined for content that only the engine has. */
  readonly content: string | undefined;
}

/** Reads a content part such as `image_url`, `input_audio` or `video_url`. */
export function mediaSource(part: JsonObject): MediaSource {
  const { uuid, type } = part;
  const named = Object.keys(part).find((name) => name !== "type" && /image|audio|video/.test(name));
  const value = part[String(type)] ?? (named === undefined ? undefined : part[named]);
  const fields: JsonObject = typeof value === "object" && value !== null ? (value as JsonObject) : { url: value };
  const content = fields.url ?? fields.data;
  return {
    uuid: typeof uuid === "string" && uuid !== "" ? uuid : undefined,
    content: typeof content === "string" && content !== "" ? content : undefined,
  };
}

/** Fields of a request that change what an engine makes of its images, audio and videos. */
const processorFields = ["mm_processor_kwargs", "media_io_kwargs"] as const;

/** The arguments of an engine's media processor in a request, as JSON; empty for none. */
export function processorArguments(fields: JsonObject): string {
  const given = processorFields.filter((name) => fields[name] !== undefined && fields[name] !== null);
  return given.length > 0 ? JSON.stringify(given.map((name) => [name, fields[name]])) : "";
}
/**
 * A hash of what identifies a part to an engine: its `uuid`, the encoded bytes of a data URL without its media type, or
 * else the URL, whose content the router does not know.
 *
 * @param given see `processorArguments`
 * @returns undefined for a part with neither
 */
export function mediaHash(part: JsonObject, given: string): string | undefined {
  const { uuid, content } = mediaSource(part);
  const hash = createHash("sha256").update(`${String(part.type)}\n${given}\n`);
  if (uuid !== undefined) return hash.update(`uuid\n${uuid}`).digest("base64url");
  if (content === undefined) return undefined;
  const encoded = content.startsWith("data:") ? content.indexOf(";base64,") : -1;
  return (encoded < 0 ? hash.update(`url\n${content}`) : hash.update(content.slice(encoded))).digest("base64url");
}
