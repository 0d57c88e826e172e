/** A running stream that another engine can go on with. */
export interface MovableStream {
  /** The engine that it runs at. */
  readonly engineId: string;
  /** @returns whether another engine goes on with it */
  move(): boolean;
}

/** The resumable streams of this router, of which at most as many run as its descriptors allow. */
export class MovableStreams {
  readonly #streams = new Set<MovableStream>();

  add(stream: MovableStream): void {
    this.#streams.add(stream);
  }

  delete(stream: MovableStream): void {
    this.#streams.delete(stream);
  }

  /** Moves what can be moved from an engine to others. @returns how many streams moved, and how many stay */
  move(engineId: string): { readonly moved: number; readonly stay: number } {
    const there = [...this.#streams].filter((stream) => stream.engineId === engineId);
    const moved = there.filter((stream) => stream.move()).length;
    return { moved, stay: there.length - moved };
  }
}
