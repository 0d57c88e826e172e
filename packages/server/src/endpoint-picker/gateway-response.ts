import type { GatewayStream } from "../grpc/index.ts";
import type { ClientResponse } from "../request/response-sink.ts";

/** An answer of our own instead of an engine's. */
interface Refusal {
  readonly status: number;
  readonly headers: readonly string[];
  readonly body: Buffer[];
}

/**
 * The client's response, behind a gateway. The head of an engine's answer passes by itself (`GatewayStream.answerHeaders`), so
 * writing a head here either repeats that, or answers instead of an engine.
 */
export class GatewayResponse implements ClientResponse {
  readonly #stream: GatewayStream;
  /** Added to the head of every refusal; flat pairs. */
  readonly #refusalHeaders: (status: number) => readonly string[];
  readonly #listeners: Record<"close" | "drain", (() => void)[]> = { close: [], drain: [] };
  #refusal: Refusal | undefined;
  #hasHead = false;
  #isClosed = false;
  #isBehind = false;

  constructor(stream: GatewayStream, refusalHeaders: (status: number) => readonly string[] = () => []) {
    this.#stream = stream;
    this.#refusalHeaders = refusalHeaders;
  }

  get destroyed(): boolean {
    return this.#isClosed;
  }

  get headersSent(): boolean {
    return this.#hasHead || this.#refusal !== undefined;
  }

  get writableNeedDrain(): boolean {
    return this.#isBehind;
  }

  /** The head of the engine's answer has passed. */
  headPassed(): void {
    this.#hasHead = true;
  }

  on(event: "close" | "drain", listener: () => void): void {
    this.#listeners[event].push(listener);
  }

  writeHead(status: number, headers: string[]): void {
    if (!this.#hasHead) this.#refusal = { status, headers: [...headers, ...this.#refusalHeaders(status)], body: [] };
  }

  write(chunk: Buffer | string): boolean {
    const bytes = typeof chunk === "string" ? Buffer.from(chunk) : chunk;
    if (this.#refusal) {
      this.#refusal.body.push(bytes);
      return true;
    }
    this.#isBehind = !this.#stream.write(bytes);
    return !this.#isBehind;
  }

  end(chunk?: Buffer | string): void {
    if (chunk !== undefined) this.write(chunk);
    if (!this.#refusal) {
      this.#stream.end();
      return;
    }
    const { status, headers, body } = this.#refusal;
    const kept: string[] = [];
    // The gateway writes the length, and keeps its connection to the client.
    for (let at = 0; at + 1 < headers.length; at += 2) {
      if (headers[at] !== "content-length" && headers[at] !== "connection") kept.push(headers[at]!, headers[at + 1]!);
    }
    this.#stream.refuse(status, kept, Buffer.concat(body), `espalier_${status}`);
  }

  destroy(): void {
    this.#stream.destroy();
  }

  cork(): void {}

  uncork(): void {}

  /** The gateway is ready for more. */
  drained(): void {
    this.#isBehind = false;
    for (const listener of this.#listeners.drain) listener();
  }

  /** The client, or its gateway, went away. */
  closed(): void {
    this.#isClosed = true;
    for (const listener of this.#listeners.close) listener();
  }
}
