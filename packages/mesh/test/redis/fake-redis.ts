import type { VirtualTime } from "@espalier/testing";
import type { RedisArgument, RedisReply, RedisSession } from "../../src/redis/redis-session.ts";

interface Holds {
  value: string | Buffer | Set<string> | Map<string, string> | Buffer[];
  kind: "string" | "set" | "hash" | "list";
  untilMs: number;
}

/** What may go wrong with one command: it is refused, or done and its answer is lost with the session. */
type Fault = "refused" | "unheard" | undefined;

/** The commands of Redis that the backend uses, in memory and in virtual time. */
export class FakeRedis {
  readonly #time: VirtualTime;
  readonly #keys = new Map<string, Holds>();
  readonly #sessions = new Set<FakeSession>();
  /** Every command that was run, as text, the newest last. */
  readonly log: string[] = [];
  readonly published: { readonly channel: string; readonly message: Buffer }[] = [];
  fault: (command: readonly string[]) => Fault = () => undefined;

  constructor(time: VirtualTime) {
    this.#time = time;
  }

  /** @param heard takes what is published on any channel, in the order of publishing */
  session(heard: (channel: string, message: Buffer) => void = () => {}): FakeSession {
    const session = new FakeSession(this, heard);
    this.#sessions.add(session);
    return session;
  }

  /** All that is held, gone at once. */
  flush(): void {
    this.#keys.clear();
  }

  keys(part = ""): string[] {
    return [...this.#keys.keys()].filter((key) => key.includes(part) && this.#find(key)).sort();
  }

  /** Milliseconds that a key has left; Infinity when it stays for ever. */
  ttlMs(key: string): number {
    return (this.#find(key)?.untilMs ?? Number.NaN) - this.#time.clock.nowMs();
  }

  /** How many of the commands that ran began so. */
  ran(begin: string): number {
    return this.log.filter((line) => line.startsWith(begin)).length;
  }

  do(...command: RedisArgument[]): RedisReply {
    const args = command.map(bytesOf);
    const [name, ...rest] = args.map(String);
    this.log.push([name, ...rest].join(" ").slice(0, 200));
    return this.#run(name!, rest, args.slice(1));
  }

  #run(name: string, [key = "", ...args]: string[], [, ...raw]: Buffer[]): RedisReply {
    switch (name) {
      case "DEL":
      case "EXISTS": {
        const found = [key, ...args].filter((one) => this.#find(one));
        if (name === "DEL") for (const one of found) this.#keys.delete(one);
        return found.length;
      }
      case "TYPE":
        return this.#find(key)?.kind ?? "none";
      case "PEXPIRE": {
        const held = this.#find(key);
        if (held) held.untilMs = this.#time.clock.nowMs() + Number(args[0]);
        return held ? 1 : 0;
      }
      case "RENAME": {
        const held = this.#find(key);
        if (!held) throw new Error("ERR no such key");
        this.#keys.delete(key);
        this.#keys.set(args[0]!, held);
        return "OK";
      }
      case "PUBLISH":
        this.published.push({ channel: key, message: raw[0]! });
        for (const session of this.#sessions) if (!session.isEnded) session.heard(key, raw[0]!);
        return 0;
      default:
        return this.#ofType(name, key, args, raw);
    }
  }

  #ofType(name: string, key: string, args: readonly string[], raw: readonly Buffer[]): RedisReply {
    switch (name) {
      case "SET":
        if (args.includes("NX") && this.#find(key)) return null;
        this.#keys.set(key, { kind: "string", value: raw[0]!, untilMs: this.#until(args) });
        return "OK";
      case "GET":
        return this.#text(key);
      case "MGET":
        return [key, ...args].map((one) => this.#text(one));
      case "SADD":
        return this.#set(key).add(args[0]!).size;
      case "SREM":
        return args.filter((one) => this.#set(key).delete(one)).length;
      case "SMEMBERS":
        return [...this.#set(key)].map((one) => Buffer.from(one));
      case "HSET":
        return this.#hash(key).set(args[0]!, args[1]!).size;
      case "HGET":
        return bufferOr(this.#hash(key).get(args[0]!));
      case "HGETALL":
        return [...this.#hash(key)].flat().map((one) => Buffer.from(one));
      case "HDEL":
        return args.filter((field) => this.#hash(key).delete(field)).length;
      case "HLEN":
        return this.#hash(key).size;
      default:
        return this.#list(name, key, args, raw);
    }
  }

  #list(name: string, key: string, args: readonly string[], raw: readonly Buffer[]): RedisReply {
    const list = this.#held(key, "list", () => []) as Buffer[];
    switch (name) {
      case "RPUSH":
        return list.push(raw[0]!);
      case "LPUSH":
        return list.unshift(raw[0]!);
      case "LLEN":
        return list.length;
      case "LINDEX":
        return list[Number(args[0])] ?? null;
      case "LRANGE":
        return list.slice(Number(args[0]), Number(args[1]) + 1);
      case "LPOP":
        return list.length === 0 ? null : list.splice(0, Number(args[0]));
      default:
        throw new Error(`ERR unknown command ${name}`);
    }
  }

  #until(args: readonly string[]): number {
    const at = args.indexOf("PX");
    return at < 0 ? Number.POSITIVE_INFINITY : this.#time.clock.nowMs() + Number(args[at + 1]);
  }

  #find(key: string): Holds | undefined {
    const held = this.#keys.get(key);
    const isEmpty = held?.kind === "list" && (held.value as Buffer[]).length === 0;
    if (held && held.untilMs > this.#time.clock.nowMs() && !isEmpty) return held;
    this.#keys.delete(key);
    return undefined;
  }

  #held(key: string, kind: Holds["kind"], make: () => Holds["value"]): Holds["value"] {
    const held = this.#find(key) ?? { kind, value: make(), untilMs: Number.POSITIVE_INFINITY };
    if (held.kind !== kind) throw new Error("WRONGTYPE Operation against a key holding the wrong kind of value");
    this.#keys.set(key, held);
    return held.value;
  }

  #set(key: string): Set<string> {
    return this.#held(key, "set", () => new Set<string>()) as Set<string>;
  }

  #hash(key: string): Map<string, string> {
    return this.#held(key, "hash", () => new Map<string, string>()) as Map<string, string>;
  }

  #text(key: string): Buffer | null {
    const held = this.#find(key);
    return held?.kind === "string" ? Buffer.from(held.value as string) : null;
  }
}

/** A session that answers in the next microtask. */
class FakeSession implements RedisSession {
  readonly #redis: FakeRedis;
  readonly heard: (channel: string, message: Buffer) => void;
  isEnded = false;
  /** Commands that have begun and have no answer yet, and the most that ever were. */
  underWay = 0;
  mostUnderWay = 0;

  constructor(redis: FakeRedis, heard: (channel: string, message: Buffer) => void) {
    this.#redis = redis;
    this.heard = heard;
  }

  async run(...command: readonly RedisArgument[]): Promise<RedisReply> {
    this.underWay += 1;
    this.mostUnderWay = Math.max(this.mostUnderWay, this.underWay);
    try {
      await Promise.resolve();
      if (this.isEnded) throw new Error("the session with Redis has ended");
      const fault = this.#redis.fault(command.map(String));
      if (fault === "refused") throw new Error("OOM command not allowed when used memory > 'maxmemory'.");
      const reply = this.#redis.do(...command);
      if (fault !== "unheard") return reply;
      this.end("the answer is lost");
      throw new Error("no answer");
    } finally {
      this.underWay -= 1;
    }
  }

  end(_why: string): void {
    this.isEnded = true;
  }
}

const bytesOf = (argument: RedisArgument): Buffer => Buffer.from(argument);
const bufferOr = (text: string | undefined): Buffer | null => (text === undefined ? null : Buffer.from(text));
