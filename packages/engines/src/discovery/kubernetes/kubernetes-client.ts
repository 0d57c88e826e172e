import { dirname, join } from "node:path";
import { type Cancel, type HttpClient, type HttpStreamClient, parseJson } from "@espalier/core";
import { readBoundedFile } from "../local-file.ts";
import { objectOf, textOf } from "./api-objects.ts";

/** Time limit from a request to the last byte of a list, or the first byte of a watch. */
const answerTimeoutMs = 15_000;
/** Largest page of a list. */
const maxPageBytes = 32 * 1024 * 1024;
/** Largest event of a watch. An object has at most 1.5 MiB in etcd, in a form that is shorter than JSON. */
const maxEventBytes = 4 * 1024 * 1024;
/** Largest token or namespace file. */
const maxSecretBytes = 64 * 1024;
/** Largest file of certificates. */
const maxCertificateBytes = 1024 * 1024;

/** Access to the API server. */
export interface KubernetesAccess {
  /** `https://host:port`, without a slash at the end. */
  readonly apiServer: string;
  /** File with the bearer token. It is read before each request, because Kubernetes rotates it. */
  readonly tokenFile: string | undefined;
  /** PEM file with certificate authorities to trust instead of the system's. It is read before each request. */
  readonly caFile: string | undefined;
}

/** Connections that trust the same certificates. */
export interface KubernetesTransport {
  readonly request: HttpClient;
  readonly stream: HttpStreamClient;
  /** Closes every connection as it falls idle. */
  close(): void;
}

interface KubernetesClientDeps {
  readonly access: KubernetesAccess;
  readonly connect: (ca: string | undefined) => KubernetesTransport;
}

/** Observer of a watch. */
interface WatchObserver {
  /** The server has accepted the watch. */
  onOpen(): void;
  /** A chunk has arrived, which completes these lines. */
  onLines(lines: readonly string[]): void;
  /** Called once, last. Undefined if the server ended the watch normally. */
  onEnd(failure: ApiFailure | undefined): void;
}

/** Client of the API server, with the identity of the service account. */
export interface KubernetesClient {
  /** @throws ApiFailure */
  get(path: string): Promise<unknown>;
  /** @returns ends the watch; the observer is not called afterwards */
  watch(path: string, observer: WatchObserver): Cancel;
  /**
   * The namespace, from the file next to the token, as Kubernetes mounts it into pods.
   *
   * @throws ApiFailure
   */
  ownNamespace(): Promise<string>;
  /** Sends no further requests. */
  close(): void;
}

/** Nothing is read or opened before the first request. */
export function createKubernetesClient({ access, connect }: KubernetesClientDeps): KubernetesClient {
  const { apiServer, tokenFile, caFile } = access;
  let transport: (KubernetesTransport & { readonly ca: string | undefined }) | undefined;
  let isClosed = false;

  const reach = async (): Promise<{ http: KubernetesTransport; headers: Readonly<Record<string, string>> }> => {
    const [token, ca] = await Promise.all([
      tokenFile === undefined ? undefined : readText(tokenFile, maxSecretBytes),
      caFile === undefined ? undefined : readText(caFile, maxCertificateBytes),
    ]);
    if (isClosed) throw new ApiFailure("the router stops");
    if (transport?.ca !== ca || !transport) {
      transport?.close();
      transport = { ...connect(ca), ca };
    }
    const authorization = token === undefined ? {} : { authorization: `Bearer ${token}` };
    return { http: transport, headers: { accept: "application/json", ...authorization } };
  };

  return {
    async get(path) {
      const { http, headers } = await reach();
      const limits = { timeoutMs: answerTimeoutMs, maxBytes: maxPageBytes };
      const answer = await http.request({ url: apiServer + path, headers, ...limits }).catch((error: unknown) => {
        throw asApiFailure(error);
      });
      const json = parseJson(answer.body);
      if (answer.status !== 200) {
        throw failureOfStatus(answer.status, answer.headers, textOf(objectOf(json).message));
      }
      if (json === undefined) throw new ApiFailure("the answer is not JSON");
      return json;
    },
    watch(path, observer) {
      let isOver = false;
      let cancel: Cancel = () => {};
      const end = (failure: ApiFailure | undefined): void => {
        if (isOver) return;
        isOver = true;
        cancel();
        observer.onEnd(failure);
      };
      reach().then(
        ({ http, headers }) => {
          if (isOver) return;
          const request = { url: apiServer + path, headers, headTimeoutMs: answerTimeoutMs };
          cancel = http.stream(
            request,
            readingLines(observer, end, () => isOver),
          );
        },
        (error: unknown) => end(asApiFailure(error)),
      );
      return () => {
        isOver = true;
        cancel();
      };
    },
    async ownNamespace() {
      if (tokenFile === undefined) throw new ApiFailure("no namespace and no service account");
      return readText(join(dirname(tokenFile), "namespace"), maxSecretBytes);
    },
    close() {
      isClosed = true;
      transport?.close();
    },
  };
}

function readingLines(
  observer: WatchObserver,
  end: (failure: ApiFailure | undefined) => void,
  isOver: () => boolean,
): Parameters<HttpStreamClient>[1] {
  const splitter = createLineSplitter(maxEventBytes);
  return {
    onHead(status, headers) {
      if (status !== 200) end(failureOfStatus(status, headers, undefined));
      else if (!isOver()) observer.onOpen();
    },
    onData(chunk) {
      if (isOver()) return;
      try {
        observer.onLines(splitter.push(chunk));
      } catch (error) {
        end(asApiFailure(error));
      }
    },
    onEnd: (error) => end(error && asApiFailure(error)),
  };
}

async function readText(path: string, maxBytes: number): Promise<string> {
  try {
    const { bytes } = await readBoundedFile(path, maxBytes);
    const text = bytes.toString("utf8").trim();
    if (text === "") throw new ApiFailure(`${path} is empty`);
    return text;
  } catch (error) {
    throw asApiFailure(error);
  }
}

const meanings: Readonly<Record<number, string>> = {
  401: "the token is not accepted",
  403: "the service account lacks the permission",
  404: "resource kind not found",
  410: "resource version expired",
  429: "too many requests",
};
/** Characters of an error message; the rest is cut. */
const maxMessageLength = 300;

/** A failure of the API server or of the connection to it. */
export class ApiFailure extends Error {
  /** HTTP status; 0 when there was no answer. */
  readonly status: number;
  /** Earliest retry in milliseconds, by `Retry-After`; 0 without it. */
  readonly retryAfterMs: number;

  constructor(message: string, status = 0, retryAfterMs = 0, options: ErrorOptions = {}) {
    super(message.slice(0, maxMessageLength), options);
    this.status = status;
    this.retryAfterMs = retryAfterMs;
  }
}

/** @param said message of the answer's `Status` object, if there is one */
function failureOfStatus(
  status: number,
  headers: Readonly<Record<string, string>>,
  said: string | undefined,
): ApiFailure {
  const meaning = meanings[status];
  const message = `status ${status}${meaning === undefined ? "" : `, ${meaning}`}${said === undefined ? "" : `: ${said}`}`;
  const seconds = Number(headers["retry-after"] ?? 0);
  return new ApiFailure(message, status, Number.isFinite(seconds) && seconds > 0 ? seconds * 1_000 : 0);
}

export function asApiFailure(thrown: unknown): ApiFailure {
  if (thrown instanceof ApiFailure) return thrown;
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  return new ApiFailure(message, 0, 0, { cause: thrown });
}

const newline = 0x0a;

/** Splits a stream of bytes into lines. */
interface LineSplitter {
  /**
   * @param chunk may be overwritten after the call
   * @returns the completed lines, without line ends; empty ones are dropped
   * @throws RangeError if a line is longer than the limit, and TypeError if one is not UTF-8
   */
  push(chunk: Uint8Array): readonly string[];
}

export function createLineSplitter(maxLineBytes: number): LineSplitter {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  let pending: Buffer[] = [];
  let pendingBytes = 0;

  const add = (piece: Uint8Array): void => {
    pendingBytes += piece.length;
    if (pendingBytes > maxLineBytes) throw new RangeError(`a line is longer than ${maxLineBytes} bytes`);
    if (piece.length > 0) pending.push(Buffer.from(piece));
  };
  const takeLine = (): string => {
    const line = decoder.decode(pending.length === 1 ? pending[0] : Buffer.concat(pending, pendingBytes));
    pending = [];
    pendingBytes = 0;
    return line;
  };
  return {
    push(chunk) {
      const lines: string[] = [];
      let start = 0;
      for (let end = chunk.indexOf(newline); end >= 0; end = chunk.indexOf(newline, start)) {
        add(chunk.subarray(start, end));
        const line = takeLine();
        if (line.trim() !== "") lines.push(line);
        start = end + 1;
      }
      add(chunk.subarray(start));
      return lines;
    },
  };
}
