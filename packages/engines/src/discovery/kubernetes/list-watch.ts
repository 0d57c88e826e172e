import { backoffDelayMs, type Cancel, type Random, type Scheduler } from "@espalier/core";
import type { FailureReport } from "../engine-source.ts";
import {
  type KubernetesObject,
  listOf,
  objectOf,
  parseWatchLine,
  readObject,
  textOf,
  type WatchEvent,
} from "./api-objects.ts";
import { ApiFailure, asApiFailure, type KubernetesClient } from "./kubernetes-client.ts";

const retry = { firstDelayMs: 250, maxDelayMs: 30_000 };
/** Longest `Retry-After` that is honored. */
const maxRetryAfterMs = 60_000;
/** Failed watches in a row after which the failure is reported, and polling by lists takes over. */
const maxFailedWatches = 3;
/** Longest wait for the first list at a start. */
const startTimeoutMs = 5_000;
/** Pause before a kind that the cluster does not have is asked for again; by chance up to a third less or more. */
const absentMs = 30_000;

export interface KubernetesPorts {
  readonly client: KubernetesClient;
  readonly scheduler: Scheduler;
  readonly random: Random;
}

interface ListWatchOptions<T> {
  /** Plural name of the watched objects, for messages. */
  readonly kind: string;
  /** Undefined for the service account's own. */
  readonly namespace: string | undefined;
  /** Paths of the collection in a namespace; the first that exists is used. */
  readonly paths: (namespace: string) => readonly string[];
  /** Selectors, as the API names them. */
  readonly parameters: Readonly<Record<string, string>>;
  /** Whether an empty list is a failure that leaves the last one as it is. */
  readonly mustExist: boolean;
  /**
   * For a kind that a cluster may lack: called when none of the paths exists, once until one does. That is then an empty
   * list, not a failure. An API server answers 503, not 404, until it knows all kinds that are installed. A start does
   * not wait for such a kind where it may not be read.
   */
  readonly onAbsent?: () => void;
  readonly maxObjects: number;
  /** Extracts the stored part of an object, as plain data. */
  readonly read: (object: KubernetesObject) => T;
  /** Called with the values of all objects, sorted by name, after the first list and after each change. */
  readonly onValues: (values: readonly T[]) => void;
  readonly report: FailureReport;
}

/**
 * Follows a collection of objects: lists it, watches it from that version on, and lists it again when resource version expired,
 * when a watch goes silent, or when watches fail repeatedly.
 */
export interface ListWatch {
  /** Resolves after the first list, or after a few seconds without one, which is reported as a failure. */
  start(): Promise<void>;
  stop(): void;
}

export function createListWatch<T>(ports: KubernetesPorts, options: ListWatchOptions<T>): ListWatch {
  return new Reflector(ports, options);
}

class Reflector<T> implements ListWatch {
  readonly #ports: KubernetesPorts;
  readonly #options: ListWatchOptions<T>;
  readonly #cache: ObjectCache<T>;
  #isStopped = false;
  #hasListed = false;
  #isAbsent = false;
  /** Failed lists and short watches in a row. */
  #failures = 0;
  #failedWatches = 0;
  #cancel: Cancel = () => {};
  #onFirst: () => void = () => {};

  constructor(ports: KubernetesPorts, options: ListWatchOptions<T>) {
    this.#ports = ports;
    this.#options = options;
    this.#cache = createObjectCache(options);
  }

  async start(): Promise<void> {
    const first = new Promise<void>((resolve) => {
      this.#onFirst = resolve;
    });
    const cancelTimeout = this.#ports.scheduler.after(startTimeoutMs, () => {
      this.#fail("list", "no list yet");
      this.#onFirst();
    });
    void this.#run();
    await first;
    cancelTimeout();
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancel();
    this.#onFirst();
  }

  async #run(): Promise<void> {
    while (!this.#isStopped) {
      try {
        const listed = await this.#list();
        if (listed) await this.#follow(listed.path, listed.version);
      } catch (error) {
        // What a listener throws ends a watch, not all watching.
        await this.#takeFailure(asApiFailure(error));
      }
    }
  }

  /** Lists once. After a failure it pauses before it returns. */
  async #list(): Promise<{ path: string; version: string } | undefined> {
    const { client } = this.#ports;
    const { paths, namespace, parameters, mustExist, maxObjects } = this.#options;
    try {
      const found = paths(namespace ?? (await client.ownNamespace()));
      const list = await listFirst(client, { paths: found, parameters, mustExist, maxObjects });
      this.#isAbsent = false;
      this.#take(list.objects);
      return this.#isStopped ? undefined : list;
    } catch (error) {
      const failure = asApiFailure(error);
      if (failure.status === 404 && this.#options.onAbsent) await this.#takeAbsence(this.#options.onAbsent);
      else await this.#takeFailure(failure);
      return undefined;
    }
  }

  #take(objects: readonly KubernetesObject[]): void {
    if (this.#isStopped) return;
    this.#cache.replace(objects);
    this.#clear("list");
    this.#publish();
  }

  async #takeAbsence(onAbsent: () => void): Promise<void> {
    this.#failures = 0;
    this.#take([]);
    if (!this.#isAbsent && !this.#isStopped) onAbsent();
    this.#isAbsent = true;
    await this.#sleep(absentMs * (2 / 3 + (2 / 3) * this.#ports.random.float()));
  }

  async #takeFailure(failure: ApiFailure): Promise<void> {
    this.#failures += 1;
    this.#fail("list", failure.message, failure);
    if (failure.status === 403 && this.#options.onAbsent) this.#onFirst();
    await this.#pause(failure);
  }

  /** Watches from a version on, until a new list is needed. */
  async #follow(path: string, from: string): Promise<void> {
    for (let version: string | undefined = from; version !== undefined && !this.#isStopped; ) {
      const end: WatchEnd = await this.#watch(path, version);
      if (this.#isStopped) return;
      version = end.version;
      this.#failures = end.isSettled ? 0 : this.#failures + 1;
      this.#failedWatches = end.failure ? this.#failedWatches + 1 : 0;
      if (end.failure && this.#failedWatches >= maxFailedWatches) {
        this.#fail("watch", end.failure.message, end.failure);
        version = undefined;
      }
      if (this.#failures > 0) await this.#pause(end.failure);
    }
  }

  async #watch(path: string, version: string): Promise<WatchEnd> {
    const { scheduler, client } = this.#ports;
    const cache = this.#cache;
    const watch = watchOnce({
      ...{ client, scheduler, path, version, cache, parameters: this.#options.parameters },
      onSettled: () => this.#accepted(),
      onProgress: () => this.#publish(),
      needsList: (event) => this.#accept(event),
    });
    this.#cancel = watch.cancel;
    const end = await watch.end;
    if (!end.failure) this.#accepted();
    return end;
  }

  /** @returns whether a new list is needed */
  #accept({ kind }: WatchEvent): boolean {
    this.#accepted();
    return kind === "deleted" && (this.#cache.ignored > 0 || this.#options.mustExist);
  }

  #accepted(): void {
    this.#failedWatches = 0;
    this.#clear("watch");
  }

  #publish(): void {
    const { mustExist, maxObjects, onValues } = this.#options;
    if (this.#isStopped) return;
    if (this.#cache.ignored > 0) this.#fail("count", `more than ${maxObjects}; the rest is ignored`);
    else this.#clear("count");
    if (this.#cache.takeChanged() || !this.#hasListed) {
      const values = this.#cache.values();
      if (values.length > 0 || !mustExist) onValues(values);
    }
    this.#hasListed = true;
    this.#onFirst();
  }

  #fail(about: string, message: string, cause?: unknown): void {
    if (this.#isStopped) return;
    const { report, kind } = this.#options;
    report.fail(`${kind} ${about}`, `${kind}, ${about}: ${message}`, cause);
  }

  #clear(about: string): void {
    if (!this.#isStopped) this.#options.report.clear(`${this.#options.kind} ${about}`);
  }

  #pause(failure: ApiFailure | undefined): Promise<void> {
    const backoffMs = backoffDelayMs(this.#failures - 1, retry, this.#ports.random);
    return this.#sleep(Math.max(backoffMs, Math.min(failure?.retryAfterMs ?? 0, maxRetryAfterMs)));
  }

  /** Ends early with a stop. */
  #sleep(delayMs: number): Promise<void> {
    if (this.#isStopped) return Promise.resolve();
    return new Promise((resolve) => {
      const cancel = this.#ports.scheduler.after(delayMs, resolve);
      this.#cancel = () => {
        cancel();
        resolve();
      };
    });
  }
}

/** Objects per page. */
const pageSize = 250;
/** Pages read beyond what `maxObjects` needs, before the list counts as endless. */
const sparePages = 8;

interface ListQuestion {
  readonly path: string;
  /** Selectors, as the API names them. */
  readonly parameters: Readonly<Record<string, string>>;
  /** Reading ends with the page that exceeds this. */
  readonly maxObjects: number;
}

interface ObjectList {
  readonly objects: readonly KubernetesObject[];
  /** Version from which to watch. */
  readonly version: string;
}

/**
 * Reads a list, page by page.
 *
 * @throws ApiFailure
 */
async function listObjects(
  client: KubernetesClient,
  { path, parameters, maxObjects }: ListQuestion,
): Promise<ObjectList> {
  const objects: KubernetesObject[] = [];
  let token: string | undefined;
  for (let page = 0; page < Math.ceil(maxObjects / pageSize) + sparePages; page++) {
    const query = { ...parameters, limit: String(pageSize), ...(token === undefined ? {} : { continue: token }) };
    const answer = objectOf(await client.get(`${path}?${new URLSearchParams(query)}`));
    const metadata = objectOf(answer.metadata);
    const version = textOf(metadata.resourceVersion);
    if (version === undefined || !Array.isArray(answer.items)) throw new ApiFailure("the answer is not a list");
    for (const item of listOf(answer.items)) {
      const object = readObject(item);
      if (!object) throw new ApiFailure("the list contains an item that is not an object");
      objects.push(object);
    }
    token = textOf(metadata.continue);
    if (token === undefined || objects.length > maxObjects) return { objects, version };
  }
  throw new ApiFailure("the list does not end");
}

/**
 * Reads the first list that exists: an API may be served under its newer or its older name.
 *
 * @param mustExist whether an empty list counts as missing
 * @throws ApiFailure
 */
async function listFirst(
  client: KubernetesClient,
  {
    paths,
    mustExist,
    ...question
  }: Omit<ListQuestion, "path"> & {
    readonly paths: readonly string[];
    readonly mustExist: boolean;
  },
): Promise<ObjectList & { readonly path: string }> {
  let failure: ApiFailure | undefined;
  for (const path of paths) {
    try {
      const list = await listObjects(client, { path, ...question });
      if (list.objects.length > 0 || !mustExist) return { ...list, path };
      failure = new ApiFailure("it does not exist");
    } catch (error) {
      const refusal = asApiFailure(error);
      if (refusal.status !== 404) throw refusal;
      failure ??= refusal;
    }
  }
  throw failure;
}

interface ObjectCacheOptions<T> {
  readonly maxObjects: number;
  /** Extracts the stored part of an object, as plain data. */
  readonly read: (object: KubernetesObject) => T;
}

/** The current objects, by a list and the watch events after it. */
type ObjectCache<T> = ReturnType<typeof createObjectCache<T>>;

function createObjectCache<T>({ maxObjects, read }: ObjectCacheOptions<T>) {
  const kept = new Map<string, { readonly value: T; readonly text: string }>();
  let ignored = 0;
  let hasChanged = false;

  const set = (object: KubernetesObject): void => {
    const known = kept.get(object.name);
    if (!known && kept.size >= maxObjects) {
      ignored += 1;
      return;
    }
    const value = read(object);
    const text = JSON.stringify(value);
    if (known?.text === text) return;
    kept.set(object.name, { value, text });
    hasChanged = true;
  };
  const remove = (name: string): void => {
    if (kept.delete(name)) hasChanged = true;
  };
  return {
    set,
    delete: remove,
    replace(objects: Iterable<KubernetesObject>): void {
      const listed = [...objects];
      const names = new Set(listed.map(({ name }) => name));
      for (const name of kept.keys()) if (!names.has(name)) remove(name);
      ignored = 0;
      for (const object of listed) set(object);
    },
    /** Objects left out because there are too many. Only a new list can add them. */
    get ignored(): number {
      return ignored;
    },
    /** The values, sorted by the objects' names. */
    values: (): readonly T[] =>
      [...kept].sort(([left], [right]) => (left < right ? -1 : 1)).map(([, { value }]) => value),
    /** Whether a value has changed since the last call. */
    takeChanged(): boolean {
      const result = hasChanged;
      hasChanged = false;
      return result;
    },
  };
}

/** The server ends a watch after this long, so that a dead one can be distinguished from a quiet one. */
const watchSeconds = 60;
/** A watch that has sent nothing for this long, not even its end, is dead. */
const silenceMs = watchSeconds * 1_000 + 10_000;
/** How long a watch must be open to count as successful. */
const settledMs = 5_000;

/** How a watch ended. */
interface WatchEnd {
  /** Version from which to watch next. Undefined: a new list is needed. */
  readonly version: string | undefined;
  /** Undefined if the server ended it normally. */
  readonly failure: ApiFailure | undefined;
  /** Whether it was open for long enough to count as successful, whatever ended it. */
  readonly isSettled: boolean;
}

interface WatchOnceOptions {
  readonly client: KubernetesClient;
  readonly scheduler: Scheduler;
  readonly path: string;
  /** Selectors, as the API names them. */
  readonly parameters: Readonly<Record<string, string>>;
  readonly version: string;
  readonly cache: ObjectCache<unknown>;
  /** Called when it has been open for long enough to count as successful. */
  onSettled(): void;
  /** Called after each chunk of the answer, when its events are in the cache. */
  onProgress(): void;
  /** @param event one that was just applied @returns true to end the watch and list again */
  needsList(event: WatchEvent): boolean;
}

/** Watches once. Events are applied to the cache; a line that cannot be parsed ends the watch. */
function watchOnce(options: WatchOnceOptions): { readonly end: Promise<WatchEnd>; readonly cancel: Cancel } {
  const { client, scheduler, cache } = options;
  let isSettled = false;
  let version: string | undefined = options.version;
  let isOver = false;
  let cancelSilence: Cancel = () => {};
  let cancelSettling: Cancel = () => {};
  let cancelWatch: Cancel = () => {};
  let settle: (end: WatchEnd) => void = () => {};
  const end = new Promise<WatchEnd>((resolve) => {
    settle = resolve;
  });
  const finish = (failure: ApiFailure | undefined, canContinue = true): void => {
    if (isOver) return;
    isOver = true;
    cancelSilence();
    cancelSettling();
    cancelWatch();
    settle({ version: canContinue ? version : undefined, failure, isSettled });
  };
  const heard = (): void => {
    cancelSilence();
    cancelSilence = scheduler.after(silenceMs, () => finish(new ApiFailure(`nothing came for ${silenceMs} ms`), false));
  };
  const take = (line: string): void => {
    const event = parseWatchLine(line);
    if (!event) finish(new ApiFailure("a line of the watch is not an event"));
    else if (event.kind === "error") {
      finish(new ApiFailure(`status ${event.status}: ${event.message}`, event.status), event.status !== 410);
    } else {
      version = event.kind === "bookmark" ? event.version : event.object.version;
      if (event.kind === "set") cache.set(event.object);
      else if (event.kind === "deleted") cache.delete(event.object.name);
      if (options.needsList(event)) finish(undefined, false);
    }
  };

  heard();
  const query = new URLSearchParams({
    ...options.parameters,
    watch: "1",
    allowWatchBookmarks: "true",
    timeoutSeconds: String(watchSeconds),
    resourceVersion: options.version,
  });
  cancelWatch = client.watch(`${options.path}?${query}`, {
    onOpen() {
      cancelSettling = scheduler.after(settledMs, () => {
        isSettled = true;
        options.onSettled();
      });
    },
    onLines(lines) {
      heard();
      for (const line of lines) if (!isOver) take(line);
      options.onProgress();
    },
    onEnd: (failure) => finish(failure, failure?.status !== 410),
  });
  return { end, cancel: () => finish(undefined) };
}
