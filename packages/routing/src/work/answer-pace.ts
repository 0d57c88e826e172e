/** How fast answers go on after their first token, learned from those that ended. */
export class AnswerPace {
  #msPerToken = 0;
  #answers = 0;

  /** 0 until something is known. */
  get msPerToken(): number {
    return this.#msPerToken;
  }

  /** Answers that it is learned from, no more than it remembers. */
  get answers(): number {
    return this.#answers;
  }

  /** @param tokens of the answer, the first one too */
  observe(tokens: number, elapsedMs: number): void {
    if (!(tokens > 1 && elapsedMs >= 0)) return;
    const ms = elapsedMs / (tokens - 1);
    this.#answers = Math.min(1 / gain, this.#answers + 1);
    if (this.#msPerToken === 0) this.#msPerToken = ms;
    // An answer that is far off moves it no further than any other.
    else this.#msPerToken += gain * (Math.min(ms, 3 * this.#msPerToken) - this.#msPerToken);
  }
}

const gain = 0.02;
