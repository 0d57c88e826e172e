/** What the open files of a process are for, at most. */
export interface DescriptorShares {
  /** Connections of clients that are served, and those beyond that are told so. */
  readonly clients: number;
  readonly told: number;
  /** Requests at engines, each of which takes a connection of its own. */
  readonly requests: number;
  readonly operators: number;
}

/** Listeners, files, and the connections of health checks and of other routers to a small fleet. */
const basicFiles = 100;
/** Of the rest; what is left over is for connections of health checks in a larger fleet, and of other routers. */
const shares = { clients: 0.35, told: 0.05, requests: 0.35, operators: 0.1 };

/**
 * A descriptor that cannot be had looks like an engine that cannot be reached, so clients must not take the last ones.
 *
 * @param openFiles that the process may have; Infinity where that is not known
 */
export function shareDescriptors(openFiles: number): DescriptorShares {
  const of = (share: number): number => Math.max(1, Math.floor((openFiles - basicFiles) * share));
  return {
    clients: of(shares.clients),
    told: of(shares.told),
    requests: of(shares.requests),
    operators: of(shares.operators),
  };
}
