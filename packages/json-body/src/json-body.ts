import { makeRoom, nodesOf } from "./nodes.ts";
import { findRepeatedKey } from "./repeated-key.ts";

export type JsonObject = Readonly<Record<string, unknown>>;

export type JsonKind = "object" | "array" | "string" | "number" | "true" | "false" | "null";

/** Words of a node, and where they are in it. */
const nodeWords = 4;
const [kindWord, startWord, endWord, lastWord] = [0, 1, 2, 3];
/** Kinds by their numbers in the kernel; keys are strings. */
const kinds: readonly (JsonKind | undefined)[] = [
  ...([undefined, "object", "array", "number", "true", "false", "null", undefined] as const),
  ...(["string", "string", "string", "string"] as const),
];
const [arrayKind, escapedBits, keyKind] = [2, 9, 10];

/** What UTF-8 has for half a surrogate pair. */
const replacement = "\ufffd";

/**
 * A JSON object, and where each of its values stands. Values are known by numbers, their nodes: 0 is the object itself,
 * and behind the node of an array or object come those of what is in it, of objects each key before its value.
 *
 * The nodes of one body at a time are in memory; those of another are found anew when they are asked for.
 */
export class JsonBody {
  readonly bytes: Buffer;
  #fields: JsonObject | undefined;

  /** For `scanBody`, which sees to it that the bytes are a JSON object. */
  constructor(bytes: Buffer) {
    this.bytes = bytes;
  }

  /** All of it as `JSON.parse` gives it. Shared by all readers: never to be changed. */
  get fields(): JsonObject {
    this.#fields ??= this.#readMembers();
    return this.#fields;
  }

  /** How many values there are at any depth, keys and the object itself among them. */
  get valueCount(): number {
    return nodesOf(this).count;
  }

  /** The value of a member of the object itself, or undefined when there is none of this name, which is ASCII. */
  member(name: string): number | undefined {
    const end = this.after(0);
    for (let key = 1; key < end; key = this.after(key + 1)) if (this.isText(key, name)) return key + 1;
    return undefined;
  }

  kindOf(node: number): JsonKind {
    return kinds[this.#word(node, kindWord)]!;
  }

  /** Where the value begins, in bytes of the body. */
  startOf(node: number): number {
    return this.#word(node, startWord);
  }

  /** Behind the value's last byte. */
  endOf(node: number): number {
    return this.#word(node, endWord);
  }

  /** The node that comes behind a value and all that is in it. */
  after(node: number): number {
    return this.#word(node, kindWord) <= arrayKind ? this.#word(node, lastWord) : node + 1;
  }

  /** How many bytes of UTF-8 a string stands for. */
  textBytes(node: number): number {
    return this.#word(node, lastWord);
  }

  /** Whether a string stands for this text, which is ASCII. */
  isText(node: number, text: string): boolean {
    if (this.textBytes(node) !== text.length) return false;
    if (this.#isEscaped(node)) return this.textOf(node) === text;
    const from = this.startOf(node) + 1;
    for (let at = 0; at < text.length; at++) if (this.bytes[from + at] !== text.charCodeAt(at)) return false;
    return true;
  }

  /** The text of a string. */
  textOf(node: number): string {
    const start = this.startOf(node);
    if (!this.#isEscaped(node)) return this.bytes.toString("utf8", start + 1, this.endOf(node) - 1);
    const { buffer, textsAt } = nodesOf(this);
    const text = buffer.toString("utf8", textsAt + start + 1, textsAt + start + 1 + this.textBytes(node));
    // Half a surrogate pair by itself stands in the text, and not in UTF-8.
    return text.includes(replacement)
      ? (JSON.parse(this.bytes.toString("utf8", start, this.endOf(node))) as string)
      : text;
  }

  /** A value as `JSON.parse` gives it. */
  valueAt(node: number): unknown {
    switch (this.kindOf(node)) {
      case "string":
        return this.textOf(node);
      case "number":
        return Number(this.bytes.toString("latin1", this.startOf(node), this.endOf(node)));
      case "true":
        return true;
      case "false":
        return false;
      case "null":
        return null;
      case "array":
        return this.after(node) > node + 1 && this.kindOf(node + 1) === "object"
          ? this.#readList(node)
          : this.#parse(node);
      default:
        return this.#readObject(node);
    }
  }

  /**
   * Texts in a row, in UTF-8.
   *
   * @param pieces nodes of strings, and other texts
   * @returns bytes that stay until a body is scanned or texts are joined the next time
   */
  join(pieces: readonly (number | string)[]): Uint8Array {
    let size = 0;
    for (const piece of pieces) size += typeof piece === "number" ? this.textBytes(piece) : sizeOf(piece);
    const memory = nodesOf(this);
    const from = memory.freeAt;
    makeRoom(from + size);
    let at = from;
    for (const piece of pieces) {
      if (typeof piece === "string") {
        at = write(piece, memory.bytes, at);
        continue;
      }
      const text = memory.textsAt + this.startOf(piece) + 1;
      const bytes = this.textBytes(piece);
      memory.bytes.copyWithin(at, text, text + bytes);
      at += bytes;
    }
    return memory.bytes.subarray(from, at);
  }

  /** Whether an object in it, at any depth, has a key with this text, which is ASCII. */
  hasKey(text: string): boolean {
    const { count } = nodesOf(this);
    for (let node = 0; node < count; node++) {
      if (this.#word(node, kindWord) >= keyKind && this.isText(node, text)) return true;
    }
    return false;
  }

  /** A key that stands twice in one of the objects in it, at any depth; undefined where there is none. */
  repeatedKey(): string | undefined {
    const key = findRepeatedKey(nodesOf(this), (node) => this.textOf(node));
    return key === undefined ? undefined : this.textOf(key);
  }

  #parse(node: number): unknown {
    return JSON.parse(this.bytes.toString("utf8", this.startOf(node), this.endOf(node)));
  }

  #readMembers(): JsonObject {
    const fields: Record<string, unknown> = {};
    const behind = this.after(0);
    for (let key = 1; key < behind; key = this.after(key + 1)) fields[this.textOf(key)] = this.valueAt(key + 1);
    return fields;
  }

  /** Long texts in few objects, as messages are, are read quicker one by one than by `JSON.parse`. */
  #readList(list: number): readonly unknown[] {
    const entries: unknown[] = [];
    const behind = this.after(list);
    for (let entry = list + 1; entry < behind; entry = this.after(entry)) entries.push(this.valueAt(entry));
    return entries;
  }

  #readObject(entry: number): unknown {
    const behind = this.after(entry);
    for (let key = entry + 1; key < behind; key += 2) if (this.kindOf(key + 1) !== "string") return this.#parse(entry);
    const fields: Record<string, string> = {};
    for (let key = entry + 1; key < behind; key += 2) fields[this.textOf(key)] = this.textOf(key + 1);
    return fields;
  }

  #isEscaped(node: number): boolean {
    return (this.#word(node, kindWord) & escapedBits) === escapedBits;
  }

  #word(node: number, word: number): number {
    const memory = nodesOf(this);
    return memory.words[memory.nodesAt + node * nodeWords + word]!;
  }
}

const isOneByte = (text: string): boolean => text.length === 1 && text.charCodeAt(0) < 0x80;

function sizeOf(text: string): number {
  return isOneByte(text) ? 1 : Buffer.byteLength(text);
}

/** @returns where it ends */
function write(text: string, bytes: Uint8Array, at: number): number {
  if (isOneByte(text)) {
    bytes[at] = text.charCodeAt(0);
    return at + 1;
  }
  return at + encoder.encodeInto(text, bytes.subarray(at)).written;
}

const encoder = new TextEncoder();
