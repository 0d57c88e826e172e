/** An object of the API: plain JSON with `metadata`. */
export interface ApiObject {
  readonly metadata: Readonly<Record<string, unknown>> & {
    readonly name: string;
    readonly labels?: Readonly<Record<string, string>>;
  };
  readonly [key: string]: unknown;
}

/** The answer to a request. */
interface ApiReply {
  head(status: number, headers: Readonly<Record<string, string>>): void;
  data(text: string): void;
  /** Ends it normally. */
  end(): void;
  /** Breaks the connection. */
  drop(): void;
}

/** A fault that replaces an answer. `hang`: no answer; `drop`: the connection breaks. */
type ApiFault =
  | "hang"
  | "drop"
  | { readonly status: number; readonly body?: string; readonly headers?: Readonly<Record<string, string>> };

interface ApiRequest {
  readonly kind: "list" | "watch";
  /** Path without its query: the collection. */
  readonly path: string;
  readonly query: URLSearchParams;
  readonly authorization: string | undefined;
}

/** An open watch. Data that a test sends reaches the client unchanged. */
interface ApiWatch extends Pick<ApiReply, "data" | "end" | "drop"> {
  readonly request: ApiRequest;
  /** Set to suppress its events. */
  isSilent: boolean;
}

/**
 * The part of the Kubernetes API that lists and watches: collections with versions, pages, selectors and bookmarks,
 * and faults for each request. It has no transport.
 */
export interface KubernetesApi {
  /** Adds a collection; others answer 404. */
  serve(collection: string): void;
  put(collection: string, object: ApiObject): void;
  remove(collection: string, name: string): void;
  /** Drops the history: clients with an older version must list again. */
  compact(): void;
  /** Sends a bookmark to all watches. */
  bookmark(): void;
  /** The only accepted token; undefined accepts any client. */
  token: string | undefined;
  /** The most objects of a page, whatever the client asks for. */
  maxPage: number;
  /** Faults of the next requests of each kind, one each. */
  readonly faults: Record<"list" | "watch", ApiFault[]>;
  readonly requests: readonly ApiRequest[];
  readonly watches: ReadonlySet<ApiWatch>;
  /** Answers a request. @returns a function to call when the client disconnects */
  answer(url: string, headers: Readonly<Record<string, unknown>>, reply: ApiReply): () => void;
}

interface Change {
  readonly version: number;
  readonly collection: string;
  readonly before: ApiObject | undefined;
  readonly after: ApiObject | undefined;
}

const json = { "content-type": "application/json" };

/** An API without collections that accepts any client. */
export function createKubernetesApi(): KubernetesApi {
  return new FakeApi();
}

class FakeApi implements KubernetesApi {
  token: string | undefined;
  maxPage = 500;
  readonly faults = { list: [] as ApiFault[], watch: [] as ApiFault[] };
  readonly requests: ApiRequest[] = [];
  readonly watches = new Set<ApiWatch>();
  readonly #collections = new Map<string, Map<string, ApiObject>>();
  readonly #changes: Change[] = [];
  #version = 1_000;
  #compacted = 1_000;

  serve(collection: string): void {
    if (!this.#collections.has(collection)) this.#collections.set(collection, new Map());
  }

  put(collection: string, object: ApiObject): void {
    this.serve(collection);
    const { name } = object.metadata;
    const before = this.#collections.get(collection)?.get(name);
    const metadata = { ...object.metadata, resourceVersion: String(this.#version + 1) };
    this.#change(collection, before, { ...object, metadata });
  }

  remove(collection: string, name: string): void {
    const before = this.#collections.get(collection)?.get(name);
    if (before) this.#change(collection, before, undefined);
  }

  compact(): void {
    this.#version += 1;
    this.#compacted = this.#version;
    this.#changes.length = 0;
  }

  bookmark(): void {
    for (const watch of this.watches) {
      if (!watch.isSilent) watch.data(line("BOOKMARK", { metadata: { resourceVersion: String(this.#version) } }));
    }
  }

  answer(url: string, headers: Readonly<Record<string, unknown>>, reply: ApiReply): () => void {
    const { pathname: path, searchParams: query } = new URL(url, "http://api");
    const authorization = headers.authorization === undefined ? undefined : String(headers.authorization);
    const request: ApiRequest = { kind: query.get("watch") ? "watch" : "list", path, query, authorization };
    this.requests.push(request);
    const fault = this.faults[request.kind].shift() ?? this.#refusal(request);
    if (fault === undefined) return this.#serveRequest(request, reply);
    if (fault === "drop") reply.drop();
    else if (fault !== "hang") {
      reply.head(fault.status, { ...json, ...fault.headers });
      reply.data(fault.body ?? status(fault.status, "as requested"));
      reply.end();
    }
    return () => {};
  }

  #refusal({ path, authorization, kind, query }: ApiRequest): ApiFault | undefined {
    if (this.token !== undefined && authorization !== `Bearer ${this.token}`) return { status: 401 };
    if (!this.#collections.has(path)) return { status: 404 };
    const from = query.get(kind === "watch" ? "resourceVersion" : "continue")?.split(":")[0];
    return from !== undefined && Number(from) < this.#compacted ? { status: 410 } : undefined;
  }

  #serveRequest(request: ApiRequest, reply: ApiReply): () => void {
    reply.head(200, json);
    if (request.kind === "watch") return this.#serveWatch(request, reply);
    const { path, query } = request;
    const all = [...(this.#collections.get(path)?.values() ?? [])].filter(selectorOf(query));
    const [version = String(this.#version), after = "0"] = (query.get("continue") ?? "").split(":").filter(Boolean);
    const end = Number(after) + Math.min(Number(query.get("limit") ?? this.maxPage), this.maxPage);
    const metadata = { resourceVersion: version, ...(end < all.length ? { continue: `${version}:${end}` } : {}) };
    reply.data(JSON.stringify({ metadata, items: all.slice(Number(after), end) }));
    reply.end();
    return () => {};
  }

  #serveWatch(request: ApiRequest, reply: ApiReply): () => void {
    const close = (how: () => void) => (): void => {
      this.watches.delete(watch);
      how();
    };
    const watch: ApiWatch = {
      request,
      isSilent: false,
      data: (text) => reply.data(text),
      end: close(() => reply.end()),
      drop: close(() => reply.drop()),
    };
    this.watches.add(watch);
    const from = Number(request.query.get("resourceVersion"));
    for (const change of this.#changes) if (change.version > from) notify(watch, change);
    return () => this.watches.delete(watch);
  }

  #change(collection: string, before: ApiObject | undefined, after: ApiObject | undefined): void {
    this.#version += 1;
    const objects = this.#collections.get(collection);
    if (after) objects?.set(after.metadata.name, after);
    else if (before) objects?.delete(before.metadata.name);
    const change = { version: this.#version, collection, before, after };
    this.#changes.push(change);
    for (const watch of this.watches) if (!watch.isSilent) notify(watch, change);
  }
}

function notify(watch: ApiWatch, { version, collection, before, after }: Change): void {
  const { path, query } = watch.request;
  if (collection !== path) return;
  const isSelected = selectorOf(query);
  const was = before !== undefined && isSelected(before);
  const is = after !== undefined && isSelected(after);
  if (is) watch.data(line(was ? "MODIFIED" : "ADDED", after));
  else if (was) {
    const metadata = { ...before.metadata, resourceVersion: String(version) };
    watch.data(line("DELETED", { ...before, metadata }));
  }
}

/** Selectors of the forms `key=value,...` and `metadata.name=value`. */
function selectorOf(query: URLSearchParams): (object: ApiObject) => boolean {
  const pairs = (name: string): string[][] =>
    (query.get(name) ?? "")
      .split(",")
      .filter(Boolean)
      .map((pair) => pair.split("="));
  const [labels, fields] = [pairs("labelSelector"), pairs("fieldSelector")];
  return ({ metadata }) =>
    labels.every(([key = "", value]) => metadata.labels?.[key] === value) &&
    fields.every(([, value]) => metadata.name === value);
}

const line = (type: string, object: unknown): string => `${JSON.stringify({ type, object })}\n`;

const status = (code: number, message: string): string => JSON.stringify({ kind: "Status", code, message });
