/** An entry of the queue. */
interface Queued {
  readonly priority: number;
  readonly arrivedMs: number;
  readonly state: "waiting" | "pulling" | "importing" | "running" | "done";
}

/** Requests that wait to run, the lowest priority value first, then in order of arrival. */
export interface WaitingQueue<Entry extends Queued> {
  readonly size: () => number;
  append(entry: Entry): void;
  /** Adds a preempted request before all others of its priority. */
  prepend(entry: Entry): void;
  /** Adds a request that had its turn already: before those that had none, in order of arrival among those that had. */
  restore(entry: Entry): void;
  /** The next request, which stays in the queue. */
  peek(): Entry | undefined;
  /** Removes the request that `peek` returned. */
  takeFirst(): void;
  /** Removes a queued request whose state is already `done`. */
  drop(entry: Entry): void;
}

interface PriorityLevel<Entry> {
  readonly priority: number;
  /** Requests that had their turn, the next one last. */
  returned: Entry[];
  arrived: Entry[];
  /** Index of the first remaining request of `arrived`. */
  head: number;
  /** Number of requests that still wait here; the others in the lists are done. */
  live: number;
}

/** Maximum done entries that a level keeps, in addition to the number that wait. */
const SLACK = 1_024;

export function createWaitingQueue<Entry extends Queued>(): WaitingQueue<Entry> {
  /** In order of priority; every level has live requests. */
  const levels: PriorityLevel<Entry>[] = [];
  let size = 0;

  const levelOf = (priority: number): PriorityLevel<Entry> => {
    let at = 0;
    while (at < levels.length && levels[at]!.priority < priority) at++;
    const found = levels[at];
    if (found?.priority === priority) return found;
    const level: PriorityLevel<Entry> = { priority, returned: [], arrived: [], head: 0, live: 0 };
    levels.splice(at, 0, level);
    return level;
  };
  const leave = (level: PriorityLevel<Entry>): void => {
    size--;
    if (--level.live === 0) levels.splice(levels.indexOf(level), 1);
    else if (level.arrived.length + level.returned.length > 2 * level.live + SLACK) compact(level);
  };
  return {
    size: () => size,
    append(entry) {
      const level = levelOf(entry.priority);
      level.arrived.push(entry);
      level.live++;
      size++;
    },
    prepend(entry) {
      const level = levelOf(entry.priority);
      level.returned.push(entry);
      level.live++;
      size++;
    },
    restore(entry) {
      const level = levelOf(entry.priority);
      let at = 0;
      while (at < level.returned.length && level.returned[at]!.arrivedMs > entry.arrivedMs) at++;
      level.returned.splice(at, 0, entry);
      level.live++;
      size++;
    },
    peek: () => (levels[0] ? firstOf(levels[0]) : undefined),
    takeFirst() {
      const level = levels[0]!;
      if (firstOf(level) === level.returned.at(-1)) level.returned.pop();
      else level.head++;
      leave(level);
    },
    drop(entry) {
      leave(levelOf(entry.priority));
    },
  };
}

/** The next request. Removes those before it that are done. */
function firstOf<Entry extends Queued>(level: PriorityLevel<Entry>): Entry | undefined {
  while (level.returned.at(-1)?.state === "done") level.returned.pop();
  const returned = level.returned.at(-1);
  if (returned) return returned;
  while (level.arrived[level.head]?.state === "done") level.head++;
  return level.arrived[level.head];
}

function compact<Entry extends Queued>(level: PriorityLevel<Entry>): void {
  const waits = (entry: Entry): boolean => entry.state === "waiting";
  level.arrived = level.arrived.slice(level.head).filter(waits);
  level.returned = level.returned.filter(waits);
  level.head = 0;
}

/** A request with a running import. */
interface Importing {
  /** When the import arrives, in milliseconds. */
  readonly readyMs: number;
}

/** Running imports, the earliest first, then in order of arrival. */
export interface ImportList<Entry extends Importing> {
  readonly size: () => number;
  add(entry: Entry): void;
  /** Removes and returns the first one that is ready by `nowMs`. */
  takeReady(nowMs: number): Entry | undefined;
  /** When the first one is ready; undefined when there is none. */
  nextMs(): number | undefined;
  drop(entry: Entry): void;
}

/** Every entry has blocks, or is one of the engine's requests, which bounds the list. */
export function createImportList<Entry extends Importing>(): ImportList<Entry> {
  const entries: Entry[] = [];
  return {
    size: () => entries.length,
    add(entry) {
      let at = entries.length;
      while (at > 0 && entries[at - 1]!.readyMs > entry.readyMs) at--;
      entries.splice(at, 0, entry);
    },
    takeReady(nowMs) {
      const [first] = entries;
      return first && first.readyMs <= nowMs ? entries.shift() : undefined;
    },
    nextMs: () => entries[0]?.readyMs,
    drop(entry) {
      const at = entries.indexOf(entry);
      if (at >= 0) entries.splice(at, 1);
    },
  };
}
