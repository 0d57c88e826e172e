/** What may wait. */
interface Queued {
  readonly priority: number;
  readonly place: "waiting" | "importing" | "running" | "gone";
}

/** Requests that wait for a place, the lowest priority value first, then in order of arrival. */
export interface WaitingQueue<Entry extends Queued> {
  readonly size: () => number;
  append(entry: Entry): void;
  /** Puts a preempted request before all others of its priority. */
  prepend(entry: Entry): void;
  /** The request to serve next, which stays in the queue. */
  peek(): Entry | undefined;
  /** Takes out what `peek` gave. */
  takeFirst(): void;
  /** Forgets a request that is in the queue, and whose place is `gone` already. */
  drop(entry: Entry): void;
}

interface Lane<Entry> {
  readonly priority: number;
  /** Preempted requests, the next one last. */
  returned: Entry[];
  arrived: Entry[];
  /** Index of the first request of `arrived` that was not taken yet. */
  head: number;
  /** Requests that wait here; the others in the lists are gone. */
  live: number;
}

/** How many entries a lane may have that nobody waits for. */
const SLACK = 1_024;

export function createWaitingQueue<Entry extends Queued>(): WaitingQueue<Entry> {
  /** In order of priority, none of them without live requests. */
  const lanes: Lane<Entry>[] = [];
  let size = 0;

  const laneOf = (priority: number): Lane<Entry> => {
    let at = 0;
    while (at < lanes.length && lanes[at]!.priority < priority) at++;
    const found = lanes[at];
    if (found?.priority === priority) return found;
    const lane: Lane<Entry> = { priority, returned: [], arrived: [], head: 0, live: 0 };
    lanes.splice(at, 0, lane);
    return lane;
  };
  const leave = (lane: Lane<Entry>): void => {
    size--;
    if (--lane.live === 0) lanes.splice(lanes.indexOf(lane), 1);
    else if (lane.arrived.length + lane.returned.length > 2 * lane.live + SLACK) compact(lane);
  };
  return {
    size: () => size,
    append(entry) {
      const lane = laneOf(entry.priority);
      lane.arrived.push(entry);
      lane.live++;
      size++;
    },
    prepend(entry) {
      const lane = laneOf(entry.priority);
      lane.returned.push(entry);
      lane.live++;
      size++;
    },
    peek: () => (lanes[0] ? firstOf(lanes[0]) : undefined),
    takeFirst() {
      const lane = lanes[0]!;
      if (firstOf(lane) === lane.returned.at(-1)) lane.returned.pop();
      else lane.head++;
      leave(lane);
    },
    drop(entry) {
      leave(laneOf(entry.priority));
    },
  };
}

/** The request to serve next. Takes out those before it that are gone. */
function firstOf<Entry extends Queued>(lane: Lane<Entry>): Entry | undefined {
  while (lane.returned.at(-1)?.place === "gone") lane.returned.pop();
  const returned = lane.returned.at(-1);
  if (returned) return returned;
  while (lane.arrived[lane.head]?.place === "gone") lane.head++;
  return lane.arrived[lane.head];
}

function compact<Entry extends Queued>(lane: Lane<Entry>): void {
  const waits = (entry: Entry): boolean => entry.place === "waiting";
  lane.arrived = lane.arrived.slice(lane.head).filter(waits);
  lane.returned = lane.returned.filter(waits);
  lane.head = 0;
}

/** Something that waits for what comes from outside. */
interface Importing {
  /** When it is here, in milliseconds. */
  readonly readyMs: number;
}

/** Those that wait for what comes from outside, the earliest first, then in order of arrival. */
export interface ImportList<Entry extends Importing> {
  readonly size: () => number;
  add(entry: Entry): void;
  /** Takes out the first one that is ready by `nowMs`. */
  takeReady(nowMs: number): Entry | undefined;
  /** When the first one is ready; undefined when there is none. */
  nextMs(): number | undefined;
  drop(entry: Entry): void;
}

/** Every entry holds blocks, or is one of the requests that the engine holds: that bounds the list. */
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
