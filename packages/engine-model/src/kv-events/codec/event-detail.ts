import type { EventDetail } from "@espalier/prefix-index";
import type { MsgpackCursor } from "./msgpack-cursor.ts";
import { eventKeys, extraKeyFields, extraKeyType, extraKeyTypes, field } from "./wire-names.ts";

/** Reads the fields of a stored event that are usually nil: adapter, salt and extra keys. */
export class DetailReader {
  readonly #cursor: MsgpackCursor;
  #adapter: string | undefined;
  #adapterNumber: number | undefined;
  #cacheSalt: string | undefined;
  /** Where extra keys that are not all nil begin; -1 for none. */
  #extraKeysAt = -1;
  /** Whether any of these fields was read; in most events none is. */
  #any = false;

  constructor(cursor: MsgpackCursor) {
    this.#cursor = cursor;
  }

  /** Starts an event. */
  reset(): void {
    if (!this.#any) return;
    this.#any = false;
    this.#adapter = undefined;
    this.#adapterNumber = undefined;
    this.#cacheSalt = undefined;
    this.#extraKeysAt = -1;
  }

  /** @returns false when the value has another type than the field */
  readField(id: number): boolean {
    const cursor = this.#cursor;
    if (cursor.readNil()) return true;
    if (id === field.extraKeys) return this.#findExtraKeys();
    this.#any = true;
    if (id === field.loraName && isMapHead(cursor.peek())) return this.#readMetadata();
    if (id === field.loraId) {
      const number = cursor.readInteger();
      if (!Number.isNaN(number)) {
        this.#adapterNumber = number;
        return true;
      }
    }
    if (!cursor.readText()) return false;
    const text = cursor.spanText() || undefined;
    if (id === field.cacheSalt) this.#cacheSalt = text;
    // The name takes precedence over a number in text form, in either order.
    else if (id === field.loraName) this.#adapter = text ?? this.#adapter;
    else this.#adapter ??= text;
    return true;
  }

  /**
   * Combines the fields.
   *
   * @param isRoot whether the event has no parent
   * @returns undefined when they contain nothing
   */
  finish(isRoot: boolean): EventDetail | undefined | "malformed" {
    if (!this.#any) return undefined;
    const adapterNumber = this.#adapterNumber;
    let adapter = this.#adapter;
    let cacheSalt = this.#cacheSalt;
    let blockKeys: EventDetail["blockKeys"];
    if (this.#extraKeysAt >= 0) {
      const cursor = this.#cursor;
      const end = cursor.at;
      cursor.at = this.#extraKeysAt;
      const keys = readExtraKeys(cursor, { adapter, adapterNumber, cacheSalt, isRoot });
      cursor.at = end;
      if (!keys) return "malformed";
      ({ adapter, cacheSalt, blockKeys } = keys);
    }
    if (adapterNumber !== undefined) adapter ??= `lora-${adapterNumber}`;
    if (adapter === undefined && cacheSalt === undefined && blockKeys === undefined) return undefined;
    return { adapter, cacheSalt, blockKeys };
  }

  /** For some time SGLang sent a map of rare fields in the place of vLLM's adapter name. */
  #readMetadata(): boolean {
    const cursor = this.#cursor;
    for (let pairs = cursor.readMapHeader(); pairs > 0; pairs--) {
      if (!cursor.readText()) return false;
      const found = eventKeys.find(cursor.view, cursor.spanStart, cursor.spanEnd);
      if (!(found === field.cacheSalt ? this.readField(found) : cursor.skip())) return false;
    }
    return true;
  }

  /** Most events have a list of nil. Other lists are read once the rest of the event is known. */
  #findExtraKeys(): boolean {
    const cursor = this.#cursor;
    const start = cursor.at;
    const count = cursor.readArrayHeader();
    if (count < 0) return false;
    for (let block = 0; block < count; block++) {
      if (cursor.readNil()) continue;
      this.#any = true;
      this.#extraKeysAt = start;
      if (!cursor.skip()) return false;
    }
    return true;
  }
}

const isMapHead = (head: number): boolean => (head & 0xf0) === 0x80 || head === 0xde || head === 0xdf;

/** Facts of an event that its extra keys repeat. */
interface ExtraKeyContext {
  readonly adapter: string | undefined;
  readonly adapterNumber: number | undefined;
  readonly cacheSalt: string | undefined;
  /** Whether the event has no parent, so that its first block is the first of a prompt. */
  readonly isRoot: boolean;
}

interface ExtraKeys {
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
 * Reads each block's list of extra keys, as vLLM publishes them: the adapter's name (formerly its number), identifiers
 * of images and the like (`identifier` or `[identifier, offset]`), the cache salt in a prompt's first block, and
 * digests of prompt embeddings; or maps with a `type`. Position distinguishes strings without a type: the adapter comes
 * first, the salt last.
 *
 * @returns undefined when this is no list of lists
 */
function readExtraKeys(cursor: MsgpackCursor, context: ExtraKeyContext): ExtraKeys | undefined {
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

/**
 * A map with a `type`. Its value is the first string or byte string, whatever its key, and an integer is its offset.
 */
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
