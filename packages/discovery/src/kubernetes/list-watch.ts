import { backoffDelayMs, type Cancel, type Random, type Scheduler } from "@espalier/common";
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
/** A server's wish to be left alone counts up to here. */
const maxRetryAfterMs = 60_000;
/** Watches that fail in a row before that is reported, and a list asked for: then it is polling that goes on. */
const tolerableFailures = 3;
/** How long a start waits for the first list. */
const startPatienceMs = 5_000;

export interface KubernetesPorts {
  readonly client: KubernetesClient;
  readonly scheduler: Scheduler;
  readonly random: Random;
}

interface ListWatchOptions<T> {
  /** What is followed, in the plural, for messages. */
  readonly kind: string;
  /** Undefined for the service account's own. */
  readonly namespace: string | undefined;
  /** Paths of the collection in a namespace; the first that exists counts. */
  readonly paths: (namespace: string) => readonly string[];
  /** Selectors, as the API names them. */
  readonly parameters: Readonly<Record<string, string>>;
  /** Whether an empty list is a failure that leaves the last one as it is. */
  readonly mustExist: boolean;
  readonly maxObjects: number;
  /** What is kept of an object: plain data. */
  readonly read: (object: KubernetesObject) => T;
  /** Given what is kept of all objects, by name, whenever something of it has changed, and after the first list. */
  readonly onValues: (values: readonly T[]) => void;
  readonly report: FailureReport;
}

/**
 * Follows a collection of objects: lists it, watches it from there, and lists it again when the server no longer knows
 * where the watch was, when a watch goes silent, or when watching fails time and again.
 */
export interface ListWatch {
  /** Resolves with the first list, or with its failure when that takes longer than a few seconds. */
  start(): Promise<void>;
  stop(): void;
}

export function createListWatch<T>(ports: KubernetesPorts, options: ListWatchOptions<T>): ListWatch {
  return new Reflector(ports, options);
}

class Reflector<T> implements ListWatch {
  readonly #ports: KubernetesPorts;
  readonly #options: ListWatchOptions<T>;
  readonly #fold: ObjectFold<T>;
  #isStopped = false;
  #hasListed = false;
  /** Lists that failed and watches that did not last, in a row. */
  #failures = 0;
  #failedWatches = 0;
  #cancel: Cancel = () => {};
  #onFirst: () => void = () => {};

  constructor(ports: KubernetesPorts, options: ListWatchOptions<T>) {
    this.#ports = ports;
    this.#options = options;
    this.#fold = createObjectFold(options);
  }

  async start(): Promise<void> {
    const first = new Promise<void>((resolve) => {
      this.#onFirst = resolve;
    });
    const cancelPatience = this.#ports.scheduler.after(startPatienceMs, () => {
      this.#fail("list", "no list yet");
      this.#onFirst();
    });
    void this.#run();
    await first;
    cancelPatience();
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancel();
    this.#onFirst();
  }

  async #run(): Promise<void> {
    while (!this.#isStopped) {
      const listed = await this.#list();
      if (listed) await this.#follow(listed.path, listed.version);
    }
  }

  /** One list. After a failure it has paused already. */
  async #list(): Promise<{ path: string; version: string } | undefined> {
    const { client } = this.#ports;
    const { paths, namespace, parameters, mustExist, maxObjects } = this.#options;
    try {
      const found = paths(namespace ?? (await client.ownNamespace()));
      const list = await listFirst(client, { paths: found, parameters, mustExist, maxObjects });
      if (this.#isStopped) return undefined;
      this.#fold.replace(list.objects);
      this.#clear("list");
      this.#publish();
      return list;
    } catch (error) {
      const failure = asApiFailure(error);
      this.#failures += 1;
      this.#fail("list", failure.message, failure);
      await this.#pause(failure);
      return undefined;
    }
  }

  /** Watches from a version on, as long as that leads somewhere. */
  async #follow(path: string, from: string): Promise<void> {
    for (let version: string | undefined = from; version !== undefined && !this.#isStopped; ) {
      const end: WatchEnd = await this.#watch(path, version);
      if (this.#isStopped) return;
      version = end.version;
      this.#failures = end.isSettled ? 0 : this.#failures + 1;
      this.#failedWatches = end.failure ? this.#failedWatches + 1 : 0;
      if (end.failure && this.#failedWatches >= tolerableFailures) {
        this.#fail("watch", end.failure.message, end.failure);
        version = undefined;
      }
      if (this.#failures > 0) await this.#pause(end.failure);
    }
  }

  async #watch(path: string, version: string): Promise<WatchEnd> {
    const { scheduler, client } = this.#ports;
    const fold = this.#fold;
    const watch = watchOnce({
      ...{ client, scheduler, path, version, fold, parameters: this.#options.parameters },
      onSettled: () => this.#accepted(),
      onProgress: () => this.#publish(),
      needsList: (event) => this.#accept(event),
    });
    this.#cancel = watch.cancel;
    const end = await watch.end;
    if (!end.failure) this.#accepted();
    return end;
  }

  /** @returns whether only a new list tells what there is now */
  #accept({ kind }: WatchEvent): boolean {
    this.#accepted();
    return kind === "deleted" && (this.#fold.leftOut > 0 || this.#options.mustExist);
  }

  #accepted(): void {
    this.#failedWatches = 0;
    this.#clear("watch");
  }

  #publish(): void {
    const { mustExist, maxObjects, onValues } = this.#options;
    if (this.#isStopped) return;
    if (this.#fold.leftOut > 0) this.#fail("count", `more than ${maxObjects}; the others are left out`);
    else this.#clear("count");
    if (this.#fold.takeChanged() || !this.#hasListed) {
      const values = this.#fold.values();
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
    const { scheduler, random } = this.#ports;
    if (this.#isStopped) return Promise.resolve();
    const backoffMs = backoffDelayMs(this.#failures - 1, retry, random);
    const delayMs = Math.max(backoffMs, Math.min(failure?.retryAfterMs ?? 0, maxRetryAfterMs));
    return new Promise((resolve) => {
      const cancel = scheduler.after(delayMs, resolve);
      this.#cancel = () => {
        cancel();
        resolve();
      };
    });
  }
}

/** Objects that one page is asked to have. */
const pageSize = 250;
/** More pages than `maxObjects` need mean that the server goes round in circles. */
const sparePages = 8;

interface ListQuestion {
  readonly path: string;
  /** Selectors, as the API names them. */
  readonly parameters: Readonly<Record<string, string>>;
  /** Reading ends with the page that passes this. */
  readonly maxObjects: number;
}

interface ObjectList {
  readonly objects: readonly KubernetesObject[];
  /** Where a watch goes on. */
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
      if (!object) throw new ApiFailure("the list has something that is no object");
      objects.push(object);
    }
    token = textOf(metadata.continue);
    if (token === undefined || objects.length > maxObjects) return { objects, version };
  }
  throw new ApiFailure("the list does not end");
}

/**
 * Reads the first of several lists that there is: an API may be served under its newer name or its older one.
 *
 * @param mustExist whether an empty list is none either
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

interface ObjectFoldOptions<T> {
  readonly maxObjects: number;
  /** What is kept of an object: plain data. */
  readonly read: (object: KubernetesObject) => T;
}

/** The objects that a list and the events after it come to. */
interface ObjectFold<T> {
  replace(objects: Iterable<KubernetesObject>): void;
  set(object: KubernetesObject): void;
  delete(name: string): void;
  /** Objects that were left out because there are too many. Only a new list can bring them back. */
  readonly leftOut: number;
  /** What is kept, in the order of the objects' names. */
  values(): readonly T[];
  /** Whether something that is kept has changed since this was asked last. */
  takeChanged(): boolean;
}

function createObjectFold<T>({ maxObjects, read }: ObjectFoldOptions<T>): ObjectFold<T> {
  const kept = new Map<string, { readonly value: T; readonly text: string }>();
  let leftOut = 0;
  let hasChanged = false;

  const set = (object: KubernetesObject): void => {
    const known = kept.get(object.name);
    if (!known && kept.size >= maxObjects) {
      leftOut += 1;
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
    replace(objects) {
      const listed = [...objects];
      const names = new Set(listed.map(({ name }) => name));
      for (const name of kept.keys()) if (!names.has(name)) remove(name);
      leftOut = 0;
      for (const object of listed) set(object);
    },
    get leftOut() {
      return leftOut;
    },
    values: () => [...kept].sort(([left], [right]) => (left < right ? -1 : 1)).map(([, { value }]) => value),
    takeChanged() {
      const result = hasChanged;
      hasChanged = false;
      return result;
    },
  };
}

/** After this long the server is asked to end a watch, so that one that has gone silent is told from a quiet one. */
const watchSeconds = 60;
/** A watch that has said nothing for this long, not even its end, is dead. */
const silenceMs = watchSeconds * 1_000 + 10_000;
/** How long a watch has to be open to be a good one. */
const settledMs = 5_000;

/** How a watch came to its end. */
interface WatchEnd {
  /** Where the next watch goes on. Undefined: nowhere, a new list is needed. */
  readonly version: string | undefined;
  /** Undefined when the server ended it in order. */
  readonly failure: ApiFailure | undefined;
  /** Whether it had been open for a while: then it was a good one, whatever ended it. */
  readonly isSettled: boolean;
}

interface WatchOnceOptions {
  readonly client: KubernetesClient;
  readonly scheduler: Scheduler;
  readonly path: string;
  /** Selectors, as the API names them. */
  readonly parameters: Readonly<Record<string, string>>;
  readonly version: string;
  readonly fold: ObjectFold<unknown>;
  /** Called when it has become a good one. */
  onSettled(): void;
  /** Called after each piece of the answer, when the fold has what it brought. */
  onProgress(): void;
  /** @param event one that has just been folded; true to end the watch and list anew */
  needsList(event: WatchEvent): boolean;
}

/** One watch. Events go into the fold; the first line that cannot be read ends it. */
function watchOnce(options: WatchOnceOptions): { readonly end: Promise<WatchEnd>; readonly cancel: Cancel } {
  const { client, scheduler, fold } = options;
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
  const finish = (failure: ApiFailure | undefined, goesOn = true): void => {
    if (isOver) return;
    isOver = true;
    cancelSilence();
    cancelSettling();
    cancelWatch();
    settle({ version: goesOn ? version : undefined, failure, isSettled });
  };
  const heard = (): void => {
    cancelSilence();
    cancelSilence = scheduler.after(silenceMs, () => finish(new ApiFailure(`nothing came for ${silenceMs} ms`), false));
  };
  const take = (line: string): void => {
    const event = parseWatchLine(line);
    if (!event) finish(new ApiFailure("a line of the watch is no event"));
    else if (event.kind === "error") {
      finish(new ApiFailure(`status ${event.status}: ${event.message}`, event.status), event.status !== 410);
    } else {
      version = event.kind === "bookmark" ? event.version : event.object.version;
      if (event.kind === "set") fold.set(event.object);
      else if (event.kind === "deleted") fold.delete(event.object.name);
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
