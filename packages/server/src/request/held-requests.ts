/** A request that its sender may abort by another call. */
export interface Abortable {
  /** The id in its body, by which SGLang's clients abort it; undefined without one. */
  readonly rid: string | undefined;
  /** What waits in the router ends, and what an engine has is not tried again. */
  abort(): void;
}

/** The requests of RL frameworks in flight at this router. At most as many as its descriptors allow. */
export class HeldRequests {
  readonly #requests = new Set<Abortable>();

  add(request: Abortable): void {
    this.#requests.add(request);
  }

  delete(request: Abortable): void {
    this.#requests.delete(request);
  }

  abort(isMeant: (rid: string | undefined) => boolean): void {
    for (const request of [...this.#requests]) if (isMeant(request.rid)) request.abort();
  }
}
