import type { Clock, Random, Scheduler } from "@espalier/core";
import type { Backend, ReplicaPorts } from "@espalier/mesh";

interface BackendRequest {
  /** Of the router; the same for all its epochs. */
  readonly name: string;
  readonly replica: ReplicaPorts;
  readonly random: Random;
}

/** What routers run in: time, and what carries their state from one to the other. */
export interface Environment {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** What deadlines are multiplied by: 1 in virtual time, more where other work of the machine takes time away. */
  readonly timeoutFactor: number;
  /** Makes the backend of a router that is about to start, or of its next epoch. */
  createBackend(request: BackendRequest): Backend;
  /** Lets time pass. */
  pass(durationMs: number): Promise<void>;
  /** Nothing gets from a router to any other, nor back, until `heal`. */
  isolate(name: string): void;
  /** Connections of a router break, and may be made again at once. */
  reset(name: string): void;
  heal(): void;
  /** The process of a router is gone: its connections break. Its backend is stopped after this. */
  kill(name: string): void;
  /** Undoes everything, once the backends are stopped. */
  stop(): Promise<void>;
}

export const clusterOptions = {
  cluster: "convergence",
  fleetSeed: "seed",
  blockSizeTokens: 16,
  security: { kind: "secret", secrets: ["a secret of the test"] },
} as const;
