import type { Random } from "@espalier/common";
import type { IdGenerator } from "@opentelemetry/sdk-trace-base";

/** Ids of traces and spans: by chance, except for a span that engines have been told of before it was made. */
export class SpanIds implements IdGenerator {
  readonly #random: Random;
  #traceId: string | undefined;
  #spanId: string | undefined;

  constructor(random: Random) {
    this.#random = random;
  }

  /** Gives the ids of a valid `traceparent` to the next span that has no parent. */
  useOnce(traceparent: string): void {
    this.#traceId = traceparent.slice(3, 35);
    this.#spanId = traceparent.slice(36, 52);
  }

  readonly generateTraceId = (): string => {
    const id = this.#traceId ?? this.#hex(4);
    this.#traceId = undefined;
    return id;
  };

  readonly generateSpanId = (): string => {
    const id = this.#spanId ?? this.#hex(2);
    this.#spanId = undefined;
    return id;
  };

  /** `words` times 8 hexadecimal digits, never all zero, which would make an id invalid. */
  #hex(words: number): string {
    let text = "";
    for (let word = 0; word < words; word++) {
      text += (1 + this.#random.integer(0xffff_ffff)).toString(16).padStart(8, "0");
    }
    return text;
  }
}
