import type { MsgpackCursor } from "./msgpack-cursor.ts";
import { extraKeyFields, extraKeyType, extraKeyTypes } from "./wire-names.ts";

/** What else an event says that its extra keys repeat. */
export interface ExtraKeyContext {
  readonly adapter: string | undefined;
  readonly adapterNumber: number | undefined;
  readonly cacheSalt: string | undefined;
  /** The event names no parent: its first block is the first of a prompt. */
  readonly isRoot: boolean;
}

export interface ExtraKeys {
  readonly adapter: string | undefined;
  readonly cacheSalt: string | undefined;
  readonly blockKeys: readonly (string | undefined)[] | undefined;
}

interface Item {
  /** `plain`: a string without a type, which may be anything. `number`: an integer without a type. */
  readonly role: "plain" | "number" | "adapter" | "salt" | "content";
  readonly text: string;
}

/**
 * Reads the list of extra keys of each block, as vLLM publishes them: the name of the adapter (formerly its number),
 * identifiers of images and the like (`identifier` or `[identifier, offset]`), in a prompt's first block the cache salt,
 * and digests of prompt embeddings; or maps that tell their `type`. Strings without a type are told apart by their
 * place: the adapter comes first, the salt last.
 *
 * @returns undefined when this is no list of lists
 */
export function readExtraKeys(cursor: MsgpackCursor, context: ExtraKeyContext): ExtraKeys | undefined {
  const blockCount = cursor.readArrayHeader();
  if (blockCount < 0) return undefined;
  const blockKeys: (string | undefined)[] = [];
  let { adapter, cacheSalt } = context;
  let anyKey = false;
  for (let block = 0; block < blockCount; block++) {
    const items = readItems(cursor);
    if (!items) return undefined;
    adapter ??= items.find(({ role }) => role === "adapter")?.text;
    let content: readonly Item[] = withoutAdapter(items, adapter, context.adapterNumber);
    if (block === 0 && (context.isRoot || cacheSalt !== undefined)) {
      cacheSalt ??= saltOf(content);
      content = withoutSalt(content, cacheSalt);
    }
    content = content.filter(({ role }) => role !== "salt");
    anyKey ||= content.length > 0;
    blockKeys.push(content.length > 0 ? content.map(({ text }) => `${text.length}:${text}`).join("") : undefined);
  }
  return { adapter, cacheSalt, blockKeys: anyKey ? blockKeys : undefined };
}

function withoutAdapter(items: readonly Item[], adapter: string | undefined, number: number | undefined): Item[] {
  const first = items[0];
  const isAdapter =
    (first?.role === "plain" && first.text === adapter) || (first?.role === "number" && first.text === String(number));
  return items.filter((item) => item.role !== "adapter" && !(isAdapter && item === first));
}

function saltOf(items: readonly Item[]): string | undefined {
  const text = (items.find(({ role }) => role === "salt") ?? items.findLast(({ role }) => role === "plain"))?.text;
  return text === "" ? undefined : text;
}

function withoutSalt(items: readonly Item[], cacheSalt: string | undefined): readonly Item[] {
  const salt = items.findLast(({ role, text }) => role === "plain" && text === cacheSalt);
  const typed = items.some(({ role }) => role === "salt");
  return typed ? items : items.filter((item) => item !== salt);
}

/** @returns undefined when this is neither nil nor a list */
function readItems(cursor: MsgpackCursor): readonly Item[] | undefined {
  if (cursor.readNil()) return [];
  const count = cursor.readArrayHeader();
  if (count < 0) return undefined;
  const items: Item[] = [];
  for (let index = 0; index < count; index++) {
    const start = cursor.at;
    const item = readItem(cursor);
    if (item) {
      items.push(item);
      continue;
    }
    cursor.at = start;
    if (!cursor.skip()) return undefined;
  }
  return items;
}

/** @returns undefined for a value that identifies nothing */
function readItem(cursor: MsgpackCursor): Item | undefined {
  const text = readScalar(cursor);
  if (text) return text;
  const pairs = cursor.readMapHeader();
  if (pairs >= 0) return readTypedItem(cursor, pairs);
  const elements = cursor.readArrayHeader();
  return elements > 0 ? readTuple(cursor, elements) : undefined;
}

function readScalar(cursor: MsgpackCursor): Item | undefined {
  if (cursor.readText()) return { role: "plain", text: cursor.spanText() };
  if (cursor.readBinary()) return { role: "content", text: hexOf(cursor) };
  const value = cursor.readInteger();
  return Number.isNaN(value) ? undefined : { role: "number", text: String(value) };
}

/** `[identifier, offset]` */
function readTuple(cursor: MsgpackCursor, elements: number): Item | undefined {
  const parts: string[] = [];
  for (let index = 0; index < elements; index++) {
    const part = readScalar(cursor);
    if (part) parts.push(part.text);
    else if (!cursor.skip()) return undefined;
  }
  return parts.length > 0 ? { role: "content", text: parts.join("@") } : undefined;
}

/** A map with a `type`; whatever its value is called, it is the first string or byte string, and an integer its offset. */
function readTypedItem(cursor: MsgpackCursor, pairs: number): Item | undefined {
  let type: number = -1;
  let text: string | undefined;
  let offset: string | undefined;
  for (let pair = 0; pair < pairs; pair++) {
    if (!cursor.readText()) return undefined;
    const key = extraKeyFields.find(cursor.view, cursor.spanStart, cursor.spanEnd);
    const value = readScalar(cursor);
    if (!value) {
      if (!cursor.skip()) return undefined;
    } else if (key === 0) {
      type = extraKeyTypes.find(cursor.view, cursor.spanStart, cursor.spanEnd);
    } else if (key < 0 && value.role === "number") {
      offset ??= value.text;
    } else if (key < 0) {
      text ??= value.text;
    }
  }
  if (text === undefined) return undefined;
  if (type === extraKeyType.adapter) return { role: "adapter", text };
  if (type === extraKeyType.cacheSalt) return { role: "salt", text };
  if (type === extraKeyType.legacy) return { role: "plain", text };
  return { role: "content", text: offset === undefined ? text : `${text}@${offset}` };
}

function hexOf({ bytes, spanStart, spanEnd }: MsgpackCursor): string {
  let hex = "";
  for (let at = spanStart; at < spanEnd; at++) hex += bytes[at]!.toString(16).padStart(2, "0");
  return hex;
}
