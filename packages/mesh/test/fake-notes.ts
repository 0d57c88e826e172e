import { asRouterId, EspalierError } from "@espalier/core";
import { type Origin, originKey } from "../src/origin.ts";
import type { PlaneExchange } from "../src/rows/plane-exchange.ts";

const encode = (value: unknown): Uint8Array => new TextEncoder().encode(JSON.stringify(value));

/** Notes that are one text for each router, of which the longest counts. */
export class FakeNotes implements PlaneExchange {
  /** Of the others, by origin. */
  readonly heard = new Map<string, string>();
  readonly #origins = new Map<string, Origin>();
  readonly #self: () => Origin;
  readonly #listeners = new Set<(frame: Uint8Array) => void>();
  #own = "";

  constructor(self: () => Origin) {
    this.#self = self;
  }

  post(text: string): void {
    this.#own = text;
    for (const listener of [...this.#listeners]) listener(this.#frame(this.#self(), text));
  }

  onFrame(listener: (frame: Uint8Array) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  fullFrames(): readonly Uint8Array[] {
    return this.#own === "" ? [] : [this.#frame(this.#self(), this.#own)];
  }

  relayFrames(): readonly { readonly origin: Origin; readonly frame: Uint8Array }[] {
    return [...this.#origins].map(([key, origin]) => ({ origin, frame: this.#frame(origin, this.heard.get(key)!) }));
  }

  receive(frame: Uint8Array): ReturnType<PlaneExchange["receive"]> {
    const { router, epoch, text } = parse(frame);
    if (text === undefined) return undefined;
    const origin = { router: asRouterId(String(router)), epoch: Number(epoch) };
    const key = originKey(origin);
    const isNews = router !== this.#self().router && String(text).length > (this.heard.get(key)?.length ?? 0);
    if (isNews) {
      this.heard.set(key, String(text));
      this.#origins.set(key, origin);
    }
    return { origin, isNews };
  }

  #frame(origin: Origin, text: string): Uint8Array {
    return encode({ ...origin, text });
  }
}

/** A frame without a text is of another kind. */
function parse(frame: Uint8Array): Readonly<Record<string, unknown>> {
  try {
    return JSON.parse(new TextDecoder().decode(frame)) as Readonly<Record<string, unknown>>;
  } catch {
    throw new EspalierError("mesh_frame_invalid");
  }
}
