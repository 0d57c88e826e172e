const carriageReturn = 0x0d;
const lineFeed = 0x0a;

/** Sees every chunk of a body on its way to the client. May delay, remove or replace bytes. */
export interface BodyFilter {
  /** Whether it may change the body's length; if not, `content-length` is passed on. */
  readonly changesLength: boolean;
  push(chunk: Buffer): Buffer | readonly Buffer[] | undefined;
  /** Returns delayed bytes when the engine's body is complete. Not called for a body that was cut. */
  end(): Buffer | undefined;
  /** Returns the whole events that were delayed when the engine's body is cut. */
  cut?(): Buffer | undefined;
}

/** What an answer is written to: part of `ServerResponse` of `node:http`. */
export interface ClientResponse {
  readonly destroyed: boolean;
  readonly headersSent: boolean;
  readonly writableNeedDrain: boolean;
  on(event: "close" | "drain", listener: () => void): unknown;
  /** Headers set before the answer began, and their names; only answers over HTTP have them. */
  getHeaderNames?(): readonly string[];
  getHeaders?(): Readonly<Record<string, unknown>>;
  /** @param pairs flat header names and values; a list is of several lines */
  writeHead(status: number, pairs: (string | string[])[]): unknown;
  /** @returns false when the client is behind: `drain` follows */
  write(chunk: Buffer | string): boolean;
  end(chunk?: Buffer | string): unknown;
  destroy(): unknown;
  cork(): void;
  uncork(): void;
}

/** The client's side of one request. */
export class ResponseSink {
  readonly #response: ClientResponse;
  #filter: BodyFilter | undefined;
  /** The last four bytes written, the last one lowest. A number keeps no chunk alive. */
  #tail = 0;
  bytes = 0;

  constructor(response: ClientResponse) {
    this.#response = response;
  }

  /**
   * Begins the response.
   *
   * @param pairs flat header names and values
   * @throws TypeError when a name or a value is invalid in HTTP, and then writes nothing
   */
  begin(status: number, pairs: readonly string[], filter: BodyFilter | undefined): void {
    this.#filter = filter;
    this.#response.writeHead(status, withOwn(pairs, this.#response));
  }

  /** @returns false when the client is behind: wait for the response's `drain` */
  write(chunk: Buffer): boolean {
    const filtered = this.#filter ? this.#filter.push(chunk) : chunk;
    if (filtered === undefined) return !this.#response.writableNeedDrain;
    if (Buffer.isBuffer(filtered)) return this.#put(filtered);
    this.#response.cork();
    let flowing = true;
    for (const part of filtered) flowing = this.#put(part);
    this.#response.uncork();
    return flowing;
  }

  /** The engine's body is complete. */
  end(): void {
    const rest = this.#filter?.end();
    if (rest !== undefined) this.#put(rest);
    this.#response.end();
  }

  /**
   * Ends a broken event stream with an error event. Keeps the connection: the body is complete for HTTP, and closing
   * could reset the next request of a client that reuses it.
   *
   * @param frame one whole event
   */
  endWithFrame(frame: string | Buffer): void {
    const rest = this.#filter?.cut?.();
    if (rest !== undefined) this.#put(rest);
    this.#response.write(this.#missingEventEnd());
    this.#response.end(frame);
  }

  /** Ends a broken body so that its reader notices. */
  destroy(): void {
    this.#response.destroy();
  }

  #put(chunk: Buffer): boolean {
    if (chunk.length === 0 || this.#response.destroyed) return true;
    this.bytes += chunk.length;
    for (let i = Math.max(0, chunk.length - 4); i < chunk.length; i++) this.#tail = (this.#tail << 8) | chunk[i]!;
    return this.#response.write(chunk);
  }

  /** What the stream lacks of the blank line that ends an event (HTML Living Standard, section 9.2.5). */
  #missingEventEnd(): string {
    const last = this.#tail & 0xff;
    const before = (this.#tail >> 8) & 0xff;
    const third = (this.#tail >> 16) & 0xff;
    const afterLine = last === lineFeed || last === carriageReturn;
    if (this.bytes === 0 || (afterLine && last === before)) return "";
    if (last === lineFeed && before === carriageReturn && third === lineFeed) return "";
    return last === lineFeed ? "\n" : "\n\n";
  }
}

/**
 * An engine's headers do not replace those that the router has set, and what varies does so by both. Node keeps one line of a name
 * where headers are set already, so lines of one name become one value.
 */
function withOwn(
  pairs: readonly string[],
  response: Pick<ClientResponse, "getHeaderNames" | "getHeaders">,
): (string | string[])[] {
  if (!response.getHeaderNames?.().length) return pairs as string[];
  const own = response.getHeaders?.() ?? {};
  const merged = new Map<string, string[]>();
  for (let at = 0; at < pairs.length; at += 2) {
    const name = pairs[at]!.toLowerCase();
    if (own[name] !== undefined && name !== "vary") continue;
    merged.set(name, [...(merged.get(name) ?? []), pairs[at + 1]!]);
  }
  if (own.vary !== undefined) merged.set("vary", [...(merged.get("vary") ?? []), String(own.vary)]);
  return [...merged].flatMap(([name, values]) => [name, values.length === 1 ? values[0]! : values]);
}
