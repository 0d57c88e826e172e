import type { Cancel } from "@espalier/common";

/** Listeners of one kind of news, told in the order in which they came. One that is removed while others are told is not told. */
export class ListenerSet<News> {
  readonly #listeners = new Set<(news: News) => void>();

  add(listener: (news: News) => void): Cancel {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  tell(news: News): void {
    for (const listener of this.#listeners) listener(news);
  }
}
