import type { Sequence } from "./sequence.ts";

/** Requests that wait for a place, the lowest priority value first, then in order of arrival. */
export interface WaitingQueue<Seat> {
  readonly size: () => number;
  append(sequence: Sequence<Seat>): void;
  /** Puts a preempted request before all others of its priority. */
  prepend(sequence: Sequence<Seat>): void;
  /** The request to serve next, which stays in the queue. */
  peek(): Sequence<Seat> | undefined;
  /** Takes out what `peek` gave. */
  takeFirst(): void;
  /** Forgets a request that must be in the queue. */
  drop(sequence: Sequence<Seat>): void;
}

interface Lane<Seat> {
  readonly priority: number;
  /** Preempted requests, the next one last. */
  returned: Sequence<Seat>[];
  arrived: Sequence<Seat>[];
  /** Index of the first request of `arrived` that was not taken yet. */
  head: number;
  /** Requests that wait here; the others in the lists are gone. */
  live: number;
}

/** How many entries a lane may have that nobody waits for. */
const SLACK = 1_024;

export function createWaitingQueue<Seat>(): WaitingQueue<Seat> {
  /** In order of priority, none of them without live requests. */
  const lanes: Lane<Seat>[] = [];
  let size = 0;

  const laneOf = (priority: number): Lane<Seat> => {
    let at = 0;
    while (at < lanes.length && lanes[at]!.priority < priority) at++;
    const found = lanes[at];
    if (found?.priority === priority) return found;
    const lane: Lane<Seat> = { priority, returned: [], arrived: [], head: 0, live: 0 };
    lanes.splice(at, 0, lane);
    return lane;
  };
  const leave = (lane: Lane<Seat>): void => {
    size--;
    if (--lane.live === 0) lanes.splice(lanes.indexOf(lane), 1);
    else if (lane.arrived.length + lane.returned.length > 2 * lane.live + SLACK) compact(lane);
  };
  return {
    size: () => size,
    append(sequence) {
      const lane = laneOf(sequence.priority);
      lane.arrived.push(sequence);
      lane.live++;
      size++;
    },
    prepend(sequence) {
      const lane = laneOf(sequence.priority);
      lane.returned.push(sequence);
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
    drop(sequence) {
      sequence.place = "gone";
      leave(laneOf(sequence.priority));
    },
  };
}

/** The request to serve next. Takes out those before it that are gone. */
function firstOf<Seat>(lane: Lane<Seat>): Sequence<Seat> | undefined {
  while (lane.returned.at(-1)?.place === "gone") lane.returned.pop();
  const returned = lane.returned.at(-1);
  if (returned) return returned;
  while (lane.arrived[lane.head]?.place === "gone") lane.head++;
  return lane.arrived[lane.head];
}

function compact<Seat>(lane: Lane<Seat>): void {
  const waits = (sequence: Sequence<Seat>): boolean => sequence.place === "waiting";
  lane.arrived = lane.arrived.slice(lane.head).filter(waits);
  lane.returned = lane.returned.filter(waits);
  lane.head = 0;
}
