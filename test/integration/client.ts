import { type IncomingHttpHeaders, type IncomingMessage, request as requestHttp } from "node:http";
import { type RequestOptions, request as requestHttps } from "node:https";
import { connect, type Socket } from "node:net";
import { waitFor } from "@espalier/testing";

export type Json = Readonly<Record<string, unknown>>;

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** Flat, as they came. */
  readonly rawHeaders: readonly string[];
  readonly body: Buffer;
  readonly text: string;
  /** The body as JSON; throws when it is not. */
  readonly json: Json;
}

export interface CallOptions {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string | readonly string[]>>;
  readonly body?: string | Buffer | undefined;
  /** Sent as it is, in place of the URL's path, which would be put in order. */
  readonly path?: string;
  /** Certificates, for https. */
  readonly tls?: Pick<RequestOptions, "ca" | "cert" | "key">;
}

/** Sends one request on a connection of its own. Rejected when the connection fails or the answer is cut. */
export async function call(url: string, options: CallOptions = {}): Promise<Answer> {
  const stream = openRequest(url, options);
  const head = await stream.head;
  const body = await stream.body;
  return {
    status: head.statusCode ?? 0,
    headers: head.headers,
    rawHeaders: head.rawHeaders,
    body,
    text: body.toString("utf8"),
    get json() {
      return JSON.parse(body.toString("utf8")) as Json;
    },
  };
}

/** Posts JSON; text and bytes are sent as they are. */
export function post(
  url: string,
  body: string | Buffer | Json,
  headers: Readonly<Record<string, string>> = {},
): Promise<Answer> {
  return call(url, { method: "POST", headers: { "content-type": "application/json", ...headers }, body: bytes(body) });
}

/** A request whose answer is read as it comes. */
export interface OpenRequest {
  readonly head: Promise<IncomingMessage>;
  /** The whole body; rejected when it is cut. */
  readonly body: Promise<Buffer>;
  received(): string;
  destroy(): void;
}

export function openPost(
  url: string,
  body: string | Json,
  headers: Readonly<Record<string, string>> = {},
  tls: CallOptions["tls"] = {},
) {
  const all = { "content-type": "application/json", ...headers };
  return openRequest(url, { method: "POST", headers: all, body: bytes(body), tls });
}

function openRequest(url: string, { method = "GET", headers = {}, body, path, tls }: CallOptions): OpenRequest {
  const chunks: Buffer[] = [];
  const options: RequestOptions = { method, agent: false, headers: headers as Record<string, string>, ...tls };
  if (path !== undefined) options.path = path;
  const client = (url.startsWith("https:") ? requestHttps : requestHttp)(url, options);
  const head = new Promise<IncomingMessage>((resolve, reject) => {
    client.once("response", resolve);
    client.on("error", reject);
    client.once("close", () => reject(new Error("closed without an answer")));
  });
  const whole = head.then(
    (response) =>
      new Promise<Buffer>((resolve, reject) => {
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.on("end", () => resolve(Buffer.concat(chunks)));
        response.on("error", reject);
      }),
  );
  whole.catch(() => {});
  head.catch(() => {});
  client.end(body);
  return {
    head,
    body: whole,
    received: () => Buffer.concat(chunks).toString("utf8"),
    destroy: () => client.destroy(),
  };
}

function bytes(body: string | Buffer | Json): string | Buffer {
  return typeof body === "string" || Buffer.isBuffer(body) ? body : JSON.stringify(body);
}

/** A connection on which a test writes bytes of its own. */
export interface RawConnection {
  readonly socket: Socket;
  write(bytes: string | Buffer): void;
  received(): string;
  /** Waits until what was received fits. */
  until(pattern: RegExp): Promise<string>;
  /** Waits until the other side has closed it. */
  closed(): Promise<void>;
}

export async function rawConnection(port: number): Promise<RawConnection> {
  const socket = connect(port, "127.0.0.1");
  const chunks: Buffer[] = [];
  socket.on("data", (chunk: Buffer) => chunks.push(chunk));
  socket.on("error", () => {});
  await new Promise((resolve) => socket.once("connect", resolve));
  const received = (): string => Buffer.concat(chunks).toString("latin1");
  return {
    socket,
    write: (data) => socket.write(data),
    received,
    until: (pattern) => waitFor(() => pattern.test(received()) && received(), { what: String(pattern) }),
    closed: async () => {
      await waitFor(() => socket.closed || socket.readableEnded, { what: "close by the other side" });
    },
  };
}

/** The bytes of a POST. */
export function rawPost(path: string, body: string, headers: readonly string[] = []): string {
  const lines = [`POST ${path} HTTP/1.1`, "host: router", "content-type: application/json", ...headers];
  return `${lines.join("\r\n")}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
}

/** A small chat request. */
export function chat(fields: Json = {}): Json {
  return { model: "tiny", messages: [{ role: "user", content: "hello" }], max_tokens: 3, ...fields };
}

export interface ErrorObject {
  readonly message: string;
  readonly type: string;
  readonly param: string | null;
  readonly code: string;
}

/** The error object of an OpenAI answer. */
export function errorOf(answer: Answer): ErrorObject {
  return answer.json.error as unknown as ErrorObject;
}

/** The `data` of every event of a stream, which must end with a whole one. */
export function eventData(text: string): string[] {
  if (!text.endsWith("\n\n")) throw new Error(`the stream ends inside an event: ${JSON.stringify(text.slice(-80))}`);
  return text
    .slice(0, -2)
    .split("\n\n")
    .flatMap((event) => event.split("\n").filter((line) => line.startsWith("data: ")))
    .map((line) => line.slice("data: ".length));
}
