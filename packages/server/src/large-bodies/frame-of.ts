import type { JsonBody } from "@espalier/json-body";
import type { PromptHasher } from "@espalier/tokenizer";

/** Values up to this length, in bytes, stand in a frame as they are, as long as all of them have room. */
const maxVerbatimBytes = 8 * 1_024;
const maxFrameBytes = 256 * 1_024;
/** Of a longer string this many characters, which is more than any name or key that is taken. */
const keptLength = 2_048;
/** Keys that are longer are nobody's here. */
export const maxKeyBytes = 256;

/**
 * A body's own object with all of its members, and what is large in them left out: of a string its beginning and its hash
 * stand there, of a list of numbers one, and nothing of other lists and of objects. For what is asked of a body besides its
 * prompt; members of objects that have to be looked at in any case must be, before.
 */
export function frameOf(body: JsonBody, hasher: PromptHasher): Buffer {
  const members: string[] = [];
  let room = maxFrameBytes;
  const behind = body.after(0);
  for (let key = 1; key < behind; key = body.after(key + 1)) {
    if (body.textBytes(key) > maxKeyBytes) continue;
    const [start, end] = [body.startOf(key + 1), body.endOf(key + 1)];
    const isKept = end - start <= Math.min(maxVerbatimBytes, room);
    if (isKept) room -= end - start;
    const value = isKept ? body.bytes.toString("utf8", start, end) : outlineOf(body, key + 1, hasher);
    members.push(`${JSON.stringify(body.textOf(key))}:${value}`);
  }
  return Buffer.from(`{${members.join(",")}}`);
}

function outlineOf(body: JsonBody, node: number, hasher: PromptHasher): string {
  switch (body.kindOf(node)) {
    case "string":
      return JSON.stringify(shortened(body.textOf(node), hasher));
    case "array":
      return body.after(node) > node + 1 && body.kindOf(node + 1) === "number" ? "[0]" : "[]";
    case "object":
      return "{}";
    default:
      return "1";
  }
}

function shortened(text: string, { text: running }: PromptHasher): string {
  running.reset();
  running.update(text);
  return `${text.slice(0, keptLength)}:${text.length}:${running.high.toString(16)}:${running.low.toString(16)}`;
}
