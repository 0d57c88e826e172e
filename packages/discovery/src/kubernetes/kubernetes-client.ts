import { dirname, join } from "node:path";
import type { Cancel, HttpClient, HttpStreamClient } from "@espalier/common";
import { readBoundedFile } from "../bounded-file.ts";
import { ApiFailure, asApiFailure, failureOfStatus } from "./api-failure.ts";
import { objectOf, parseJson, textOf } from "./json.ts";
import { createLineSplitter } from "./line-splitter.ts";

/** From a request to the last byte of a list, or the first of a watch. */
const answerTimeoutMs = 15_000;
/** One page of a list. */
const maxPageBytes = 32 * 1024 * 1024;
/** One event of a watch. An object has at most 1.5 MiB in etcd, in a form that is shorter than JSON. */
const maxEventBytes = 4 * 1024 * 1024;
/** A token or a namespace. */
const maxSecretBytes = 64 * 1024;
const maxCertificateBytes = 1024 * 1024;

/** How the API server is reached. */
export interface KubernetesAccess {
  /** `https://host:port`, without a slash at the end. */
  readonly apiServer: string;
  /** Holds the bearer token; read again before each request, since it is replaced while it is in use. */
  readonly tokenFile: string | undefined;
  /** Certificates to trust in place of the system's, PEM; read again likewise. */
  readonly caFile: string | undefined;
}

/** Connections that trust the same certificates. */
export interface KubernetesTransport {
  readonly request: HttpClient;
  readonly stream: HttpStreamClient;
  /** Closes every connection as it falls idle. */
  close(): void;
}

export interface KubernetesClientDeps {
  readonly access: KubernetesAccess;
  readonly connect: (ca: string | undefined) => KubernetesTransport;
}

/** Who reads a watch. */
export interface WatchObserver {
  /** The server has taken it. */
  onOpen(): void;
  /** Bytes have come, and with them these lines. */
  onLines(lines: readonly string[]): void;
  /** Called once, last. Undefined when the server ended it in order. */
  onEnd(failure: ApiFailure | undefined): void;
}

/** Talks to the API server as the service account. */
export interface KubernetesClient {
  /** @throws ApiFailure */
  get(path: string): Promise<unknown>;
  /** @returns ends it; the observer hears nothing afterwards */
  watch(path: string, observer: WatchObserver): Cancel;
  /**
   * The namespace in a file beside the token, as Kubernetes mounts it into pods.
   *
   * @throws ApiFailure
   */
  ownNamespace(): Promise<string>;
  /** Asks for nothing more. */
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
      if (tokenFile === undefined) throw new ApiFailure("no namespace is given, and there is no service account");
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
