import type { Exchange, Upstream } from "./exchange.ts";

/** An answer that is longer than this passes without being judged to the end. */
const maxJudgedBytes = 64 * 1024;

const noBytes = Buffer.alloc(0);

/** The beginning of a body, held back while the exchange makes up its mind about it. */
export class AnswerHead {
  readonly #exchange: Pick<Exchange, "judge">;
  #held: Buffer | undefined;

  constructor(exchange: Pick<Exchange, "judge">) {
    this.#exchange = exchange;
  }

  /**
   * @param chunk undefined at the end of the body
   * @returns what is due to the client, undefined for an empty body that passes
   */
  take(
    upstream: Upstream,
    status: number,
    chunk: Buffer | undefined,
    ended: boolean,
  ): Buffer | undefined | "more" | "decline" {
    if (!this.#exchange.judge) return chunk;
    const head = this.#held ? Buffer.concat([this.#held, chunk ?? noBytes]) : chunk;
    this.#held = undefined;
    if (head === undefined) return undefined;
    const verdict = this.#exchange.judge(upstream, status, head, ended);
    if (verdict === "decline") return "decline";
    if (verdict === "pass" || ended || head.length >= maxJudgedBytes) return head;
    this.#held = Buffer.from(head);
    return "more";
  }
}
