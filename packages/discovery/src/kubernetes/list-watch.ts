import { backoffDelayMs, type Cancel, type Random, type Scheduler } from "@espalier/common";
import type { FailureReport } from "../failure-report.ts";
import { type ApiFailure, asApiFailure } from "./api-failure.ts";
import type { KubernetesClient } from "./kubernetes-client.ts";
import { listFirst } from "./list-objects.ts";
import { createObjectFold, type ObjectFold } from "./object-fold.ts";
import type { KubernetesObject, WatchEvent } from "./watch-event.ts";
import { type WatchEnd, watchOnce } from "./watch-once.ts";

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

export interface ListWatchOptions<T> {
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
