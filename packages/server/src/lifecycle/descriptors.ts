import { subscriberFiles } from "@espalier/shared-tree/events";

/** How the open files of a process are divided, beside those of event sockets. */
export interface DescriptorShares {
  /** Client connections that are served. */
  readonly clients: number;
  /** Client connections beyond those, answered with 503. */
  readonly rejected: number;
  /** Requests at engines, each on a connection of its own. */
  readonly requests: number;
  readonly operators: number;
}

/** For listeners, files, health checks of a small fleet, and other routers. */
const basicFiles = 100;
/** Shares of the rest. The remainder is for health checks of a larger fleet and for other routers. */
const shares = { clients: 0.35, rejected: 0.05, requests: 0.35, operators: 0.1 };
/** What event sockets leave to all others: half, and beyond this number of files nothing more. */
const leftByEvents = 3_000;

/**
 * Without descriptors, engines look unreachable, so clients must not take the last ones.
 *
 * @param openFiles most that the process may have open; Infinity when unknown
 * @param eventFiles those of event sockets now: the others share what these leave
 */
export function shareDescriptors(openFiles: number, eventFiles: () => number): DescriptorShares {
  const of = (share: number): number => Math.max(1, Math.floor((openFiles - basicFiles - eventFiles()) * share));
  return {
    get clients() {
      return of(shares.clients);
    },
    get rejected() {
      return of(shares.rejected);
    },
    get requests() {
      return of(shares.requests);
    },
    get operators() {
      return of(shares.operators);
    },
  };
}

/** Most event sockets that engines are read by. @param openFiles see `shareDescriptors` */
export function maxEventSockets(openFiles: number): number {
  const files = openFiles - basicFiles;
  return Math.floor(Math.max(files / 2, files - leftByEvents) / subscriberFiles);
}
