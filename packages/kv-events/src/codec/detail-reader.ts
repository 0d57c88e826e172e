import type { EventDetail } from "@espalier/prefix-index";
import { readExtraKeys } from "./extra-keys.ts";
import type { MsgpackCursor } from "./msgpack-cursor.ts";
import { eventKeys, field } from "./wire-names.ts";

/** Reads the fields of a stored event that are nil in most: adapter, salt and extra keys. */
export class DetailReader {
  readonly #cursor: MsgpackCursor;
  #adapter: string | undefined;
  #adapterNumber: number | undefined;
  #cacheSalt: string | undefined;
  /** Where extra keys that are not all nil begin; -1 without. */
  #extraKeysAt = -1;
  /** Whether anything was read; most events leave this alone. */
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

  /** @returns false when the value is of another type than the field has */
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
    // The name goes before a number that is text, whichever comes first.
    else if (id === field.loraName) this.#adapter = text ?? this.#adapter;
    else this.#adapter ??= text;
    return true;
  }

  /**
   * What the fields say together.
   *
   * @param isRoot the event names no parent
   * @returns undefined when they say nothing
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

  /** For some time SGLang sent a map of what is rare where vLLM has the adapter's name. */
  #readMetadata(): boolean {
    const cursor = this.#cursor;
    for (let pairs = cursor.readMapHeader(); pairs > 0; pairs--) {
      if (!cursor.readText()) return false;
      const found = eventKeys.find(cursor.view, cursor.spanStart, cursor.spanEnd);
      if (!(found === field.cacheSalt ? this.readField(found) : cursor.skip())) return false;
    }
    return true;
  }

  /** Most events have a list of nil; only other lists are looked at, once the rest of the event is known. */
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
