import { asEspalierError, type EngineSpec, EspalierError, type Startable } from "@espalier/core";
import type { Source, SourceObserver } from "./engine-source.ts";

/** Observer of merged sources. Its functions must not throw. */
export interface MergeObserver<Entry = EngineSpec> {
  /** The whole new list, which replaces the previous one. */
  onList(list: readonly Entry[]): void;
  /** A failure of a source; see `SourceObserver`. */
  onError(error: EspalierError, source: string): void;
  /** An entry of a source is ignored because another source has its id; reported once while that lasts. */
  onConflict(error: EspalierError, source: string): void;
  /** The failures of a source reported so far are over. */
  onRecovered(source: string): void;
  /** A source was added, without failures so far. */
  onFollowed(source: string): void;
  /** A source was removed, and no source of its name is left. */
  onLeft(source: string): void;
}

/** The union of several sources. */
export interface MergedSources<Entry extends Identified = EngineSpec> extends Startable {
  /**
   * Replaces the sources. Unchanged sources keep running. New ones start in parallel with the old ones. Once all have
   * started, the list changes at once from the old union to the new one, and the old sources are stopped. A new source
   * that fails keeps the entries of the old one with its name until it lists some itself. Before `start`, this sets
   * which sources `start` starts.
   *
   * @returns resolves when the change is complete; never rejects
   */
  follow(sources: readonly Source<Entry>[]): Promise<void>;
}

/** An entry of a list: an engine, or what else sources list. */
interface Identified {
  readonly id: string;
}

/**
 * Merges sources into one list. If several sources list an id, the first of them in the given order wins; each such id
 * is reported as `config_invalid` once while the conflict lasts. All sources start at once. The observer gets one list
 * when all have started, then one on each change. If a source fails to start, the others are stopped and `start` throws
 * its error.
 *
 * @param noun what an entry is, for messages
 */
export function mergeSources<Entry extends Identified = EngineSpec>(
  sources: readonly Source<Entry>[],
  observer: MergeObserver<Entry>,
  noun = "engine",
): MergedSources<Entry> {
  return new Merged(sources, observer, noun);
}

/** A source and its last list. */
interface Followed<Entry> {
  readonly source: Source<Entry>;
  list: readonly Entry[];
  failure: EspalierError | undefined;
  /** Entries of an old source of its name, used while this one fails and has listed none. */
  inherited: readonly Entry[];
}

const listOf = <Entry>({ list, failure, inherited }: Followed<Entry>): readonly Entry[] =>
  list.length === 0 && failure !== undefined ? inherited : list;

class Merged<Entry extends Identified> implements MergedSources<Entry> {
  readonly #observer: MergeObserver<Entry>;
  readonly #noun: string;
  #wanted: readonly Source<Entry>[];
  /** Sources whose entries are in the list. */
  #followed: readonly Followed<Entry>[] = [];
  #starting: readonly Followed<Entry>[] = [];
  #isRunning = false;
  #isStopped = false;
  /** Serializes changes. */
  #lastChange: Promise<void> = Promise.resolve();
  #knownConflicts: ReadonlySet<string> = new Set();

  constructor(sources: readonly Source<Entry>[], observer: MergeObserver<Entry>, noun: string) {
    this.#wanted = sources;
    this.#observer = observer;
    this.#noun = noun;
  }

  start(): Promise<void> {
    const started = this.#startAll();
    this.#lastChange = started.catch(() => {});
    return started;
  }

  follow(sources: readonly Source<Entry>[]): Promise<void> {
    this.#wanted = sources;
    this.#lastChange = this.#lastChange.then(() => this.#change());
    return this.#lastChange;
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#isRunning = false;
    const all = [...this.#followed, ...this.#starting];
    this.#followed = [];
    await Promise.all(all.map(({ source }) => source.stop()));
  }

  async #startAll(): Promise<void> {
    const first = this.#wanted.map((source) => create(source));
    for (const { source } of first) this.#observer.onFollowed(source.name);
    this.#followed = first;
    const outcomes = await Promise.allSettled(first.map((one) => one.source.start(this.#observerOf(one))));
    if (this.#isStopped) return;
    const failed = outcomes.find((outcome) => outcome.status === "rejected");
    if (failed) {
      this.#followed = first.filter((_, at) => outcomes[at]?.status === "fulfilled");
      await this.stop();
      throw failed.reason;
    }
    this.#isRunning = true;
    this.#publish();
  }

  async #change(): Promise<void> {
    // Sources set while others start replace them, so those never take effect.
    for (let wanted = this.#wanted; this.#isRunning; wanted = this.#wanted) {
      const next = await this.#startNew(wanted);
      if (this.#wanted !== wanted) continue;
      if (this.#isRunning) await this.#switchTo(next);
      return;
    }
  }

  /** Starts new sources, and stops started ones that are no longer needed. */
  async #startNew(wanted: readonly Source<Entry>[]): Promise<readonly Followed<Entry>[]> {
    const known = new Map([...this.#followed, ...this.#starting].map((one) => [one.source, one]));
    const next = wanted.map((source) => known.get(source) ?? create(source));
    const dropped = this.#starting.filter((one) => !next.includes(one));
    this.#starting = next.filter((one) => !this.#followed.includes(one));
    const fresh = next.filter(({ source }) => !known.has(source));
    await Promise.all([...dropped.map(({ source }) => source.stop()), ...fresh.map((one) => this.#startOne(one))]);
    return next;
  }

  /** A source that cannot be started counts as failing. */
  async #startOne(one: Followed<Entry>): Promise<void> {
    try {
      await one.source.start(this.#observerOf(one));
    } catch (thrown) {
      one.failure = asEspalierError(thrown);
    }
  }

  async #switchTo(next: readonly Followed<Entry>[]): Promise<void> {
    const [before, added] = [this.#followed, this.#starting];
    this.#starting = [];
    if (next.length === before.length && next.every((one, at) => one === before[at])) return;
    const left = before.filter((one) => !next.includes(one));
    this.#followed = next;
    this.#report(added, left);
    this.#publish();
    await Promise.all(left.map(({ source }) => source.stop()));
  }

  #report(added: readonly Followed<Entry>[], left: readonly Followed<Entry>[]): void {
    for (const { source } of left)
      if (!this.#followed.some((one) => one.source.name === source.name)) this.#observer.onLeft(source.name);
    for (const one of added) {
      const { source, failure } = one;
      one.inherited = left.filter((old) => old.source.name === source.name).flatMap(listOf);
      this.#observer.onFollowed(source.name);
      if (failure) this.#observer.onError(failure, source.name);
    }
  }

  #observerOf(one: Followed<Entry>): SourceObserver<Entry> {
    const { name } = one.source;
    const isActive = (): boolean => this.#followed.includes(one);
    return {
      onList: (list) => {
        one.list = list;
        if (list.length > 0) one.inherited = [];
        if (this.#isRunning && isActive()) this.#publish();
      },
      onError: (error) => {
        one.failure = error;
        if (isActive()) this.#observer.onError(error, name);
      },
      onRecovered: () => {
        one.failure = undefined;
        if (!isActive()) return;
        this.#observer.onRecovered(name);
        if (one.inherited.length === 0) return;
        one.inherited = [];
        if (this.#isRunning) this.#publish();
      },
    };
  }

  #publish(): void {
    const { entries, conflicts } = unite(this.#followed, this.#noun);
    for (const [id, { message, source }] of conflicts) {
      if (!this.#knownConflicts.has(id))
        this.#observer.onConflict(new EspalierError("config_invalid", message), source);
    }
    this.#knownConflicts = new Set(conflicts.keys());
    this.#observer.onList(entries);
  }
}

const create = <Entry>(source: Source<Entry>): Followed<Entry> => ({
  source,
  list: [],
  failure: undefined,
  inherited: [],
});

interface Union<Entry> {
  readonly entries: readonly Entry[];
  /** The message for each id that was listed again, and the source that listed it. */
  readonly conflicts: ReadonlyMap<string, { readonly message: string; readonly source: string }>;
}

function unite<Entry extends Identified>(followed: readonly Followed<Entry>[], noun: string): Union<Entry> {
  const entries: Entry[] = [];
  const owners = new Map<string, string>();
  const conflicts = new Map<string, { message: string; source: string }>();
  for (const one of followed) {
    const { name } = one.source;
    for (const entry of listOf(one)) {
      const owner = owners.get(entry.id);
      if (owner === undefined) {
        owners.set(entry.id, name);
        entries.push(entry);
      } else if (!conflicts.has(entry.id)) {
        const message = `${noun} ${entry.id} of ${name} ignored: duplicate id, kept from ${owner}`;
        conflicts.set(entry.id, { message, source: name });
      }
    }
  }
  return { entries, conflicts };
}
