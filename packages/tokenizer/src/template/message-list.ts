import type { TemplateMessage } from "./conversation.ts";
import type { Value } from "./values.ts";

/**
 * The messages of a chat as a template sees them, each made when it is read first, and what a rendering has learned of
 * them so far. A rendering that has looked at the first few of them only, and not at how many there are, goes on in the
 * same way in every chat that begins with these.
 */
export class MessageList {
  readonly count: number;
  readonly #make: (index: number) => TemplateMessage;
  readonly #made: (TemplateMessage | undefined)[] = [];
  readonly #views = new Map<number, MessageView>();
  /** The rendering depends on so many of the first messages at most. */
  read = 0;
  /** It depends on there being so many at least. */
  least = 0;
  /** It depends on how many there are. */
  isEndKnown = false;

  /** @param make may throw, which is what reading that message does then */
  constructor(count: number, make: (index: number) => TemplateMessage) {
    this.count = count;
    this.#make = make;
  }

  /** Whether there is a message with this index. */
  has(index: number): boolean {
    if (index >= this.count) {
      this.isEndKnown = true;
      return false;
    }
    this.least = Math.max(this.least, index + 1);
    return true;
  }

  /** One of the messages. */
  at(index: number): TemplateMessage {
    this.read = Math.max(this.read, index + 1);
    return this.made(index);
  }

  /** One of the messages, on which the rendering does not depend. */
  made(index: number): TemplateMessage {
    this.#made[index] ??= this.#make(index);
    return this.#made[index];
  }

  /** The messages from one of them on. */
  from(offset: number): MessageView {
    const known = this.#views.get(offset);
    if (known) return known;
    const view = new MessageView(this, offset);
    this.#views.set(offset, view);
    return view;
  }
}

/** The messages of a list from one of them on, as a template has them in a variable. */
export class MessageView {
  readonly list: MessageList;
  readonly offset: number;
  /** What looks like an array to all that read it. */
  readonly items: readonly Value[];

  constructor(list: MessageList, offset: number) {
    this.list = list;
    this.offset = offset;
    this.items = new Proxy<Value[]>([], new ViewHandler(list, offset));
    views.set(this.items, this);
  }

  has(index: number): boolean {
    return this.list.has(this.offset + index);
  }

  /** `messages[start:]` */
  slice(start: number): MessageView {
    if (start > 0) this.has(start - 1);
    return this.list.from(this.offset + start);
  }
}

const views = new WeakMap<object, MessageView>();

/** The view that a value is the items of. */
export function viewOf(value: Value): MessageView | undefined {
  return Array.isArray(value) ? views.get(value) : undefined;
}

/** Whoever reads in other ways than by an index has read everything. */
class ViewHandler implements ProxyHandler<Value[]> {
  readonly #list: MessageList;
  readonly #offset: number;

  constructor(list: MessageList, offset: number) {
    this.#list = list;
    this.#offset = offset;
  }

  get(items: Value[], key: string | symbol, receiver: unknown): unknown {
    const at = indexOf(key);
    if (at !== undefined) {
      const index = this.#offset + at;
      return this.#list.has(index) ? this.#list.at(index) : undefined;
    }
    if (key === "length") {
      this.#list.isEndKnown = true;
      return Math.max(0, this.#list.count - this.#offset);
    }
    return Reflect.get(items, key, receiver);
  }

  has(items: Value[], key: string | symbol): boolean {
    return Reflect.has(this.#fill(items), key);
  }

  ownKeys(items: Value[]): (string | symbol)[] {
    return Reflect.ownKeys(this.#fill(items));
  }

  getOwnPropertyDescriptor(items: Value[], key: string | symbol): PropertyDescriptor | undefined {
    return Reflect.getOwnPropertyDescriptor(this.#fill(items), key);
  }

  #fill(items: Value[]): Value[] {
    this.#list.isEndKnown = true;
    for (let index = this.#offset + items.length; index < this.#list.count; index++) items.push(this.#list.at(index));
    return items;
  }
}

const [zero, nine] = [0x30, 0x39];

/** The index that a key is, if it is one. */
function indexOf(key: string | symbol): number | undefined {
  if (typeof key !== "string") return undefined;
  const first = key.charCodeAt(0);
  return first >= zero && first <= nine && String(Number(key)) === key ? Number(key) : undefined;
}
