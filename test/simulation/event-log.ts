/** What a run consists of: numbers, so that the order of these names is part of the hash. */
export const logged = {
  sent: 1,
  answered: 2,
  published: 3,
  document: 4,
  load: 5,
  role: 6,
  fault: 7,
  member: 8,
} as const;

type Logged = (typeof logged)[keyof typeof logged];

/** A hash over everything that happens in a run, in order: two runs of one seed must come to the same. */
export interface EventLog {
  readonly events: number;
  add(atMs: number, kind: Logged, one?: number, other?: number, more?: number): void;
  /** 16 hexadecimal digits. */
  digest(): string;
}

const two32 = 0x1_0000_0000;
/** The offset of 64-bit FNV-1a, and its prime 2^40 + 435 (Fowler, Noll and Vo). */
const offsetHigh = 0xcbf2_9ce4;
const offsetLow = 0x8422_2325;
const primeLow = 435;

/** FNV-1a of 64 bits over 32-bit words instead of bytes. */
export function createEventLog(): EventLog {
  const float = new Float64Array(1);
  const halves = new Uint32Array(float.buffer);
  let high = offsetHigh;
  let low = offsetLow;
  let events = 0;
  const word = (value: number): void => {
    const mixed = (low ^ value) >>> 0;
    const product = mixed * primeLow;
    high = (high * primeLow + mixed * 0x100 + Math.floor(product / two32)) % two32;
    low = product % two32;
  };
  return {
    get events() {
      return events;
    },
    add(atMs, kind, one = 0, other = 0, more = 0) {
      events++;
      float[0] = atMs;
      word(halves[0]!);
      word(halves[1]!);
      for (const value of [kind, one, other, more]) word(value >>> 0);
    },
    digest: () => hex(high) + hex(low),
  };
}

const hex = (value: number): string => value.toString(16).padStart(8, "0");
