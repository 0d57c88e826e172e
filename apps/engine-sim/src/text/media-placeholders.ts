import { createHash } from "node:crypto";
import type { JsonObject } from "@espalier/core";
import type { MediaRange } from "@espalier/engine-model";
import { mediaSource, processorArguments, type RenderedChat } from "@espalier/tokenizer";
import { ApiError } from "../http/exchange.ts";
import type { ChatTokens } from "./model-text.ts";

interface MediaPlaceholderOptions {
  /** The tokens of a text without surrounding ones. */
  readonly encode: (text: string) => Uint32Array;
  /** The ends of a text's special tokens. */
  readonly cuts: (text: string) => readonly number[];
  /** The model's path, on which identifiers depend. */
  readonly model: string;
  /** Placeholders of a part. */
  readonly perPart: number;
}

/**
 * Replaces what the template writes for an image, audio or video by as many placeholders as the part has, and names its
 * content, as vLLM does. The placeholder is the middle one of the part's special tokens.
 */
export function createMediaPlaceholders({ encode, cuts, model, perPart }: MediaPlaceholderOptions) {
  return {
    /** @throws ApiError 400 when the model takes no such parts */
    tokens({ text, parts = [] }: RenderedChat, body: JsonObject): ChatTokens {
      const media: MediaRange[] = [];
      const rows: Uint32Array[] = [];
      let written = 0;
      let at = 0;
      for (const { part, start, end } of parts) {
        const ends = cuts(text.slice(start, end));
        const middle = ends[Math.floor((ends.length - 1) / 2)];
        if (middle === undefined) throw noMedia();
        const before = encode(text.slice(0, start + middle)).subarray(at);
        const placeholder = before.at(-1)!;
        rows.push(before.subarray(0, -1), new Uint32Array(perPart).fill(placeholder));
        at += before.length;
        written += before.length - 1;
        media.push({ identifier: identifierOf(part, body, model), start: written, length: perPart });
        written += perPart;
      }
      if (perPart === 0 || media.length === 0) throw noMedia();
      rows.push(encode(text).subarray(at));
      const tokens = new Uint32Array(rows.reduce((sum, row) => sum + row.length, 0));
      let next = 0;
      for (const row of rows) {
        tokens.set(row, next);
        next += row.length;
      }
      return { tokens, media };
    },
  };
}

const noMedia = (): ApiError => new ApiError(400, "At most 0 image(s) may be provided in one prompt.");

/**
 * The client's `uuid` as it is, or a hash over the model's path, the file and the processor's arguments (`mm_hasher`
 * of vLLM 0.32). A URL stands for its file here.
 */
function identifierOf(part: JsonObject, body: JsonObject, model: string): string {
  const { uuid, content = "" } = mediaSource(part);
  const given = processorArguments(body);
  if (uuid !== undefined && given === "") return uuid;
  const [, encoded] = /^data:[^,]*;base64,(.*)$/s.exec(content) ?? [];
  const file = encoded === undefined ? content : Buffer.from(encoded, "base64");
  return createHash("sha256")
    .update(`${model}\n${given}\n`)
    .update(uuid ?? file)
    .digest("hex");
}
