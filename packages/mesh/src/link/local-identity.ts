import type { Origin } from "@espalier/replication";

/** What this router says of itself in handshakes. */
export interface LocalIdentity {
  readonly origin: Origin;
  /** Where others can dial it, `host:port`; undefined when they cannot. */
  readonly address: string | undefined;
  readonly cluster: string;
  /** Root of all chain hashes; only its SHA-256 is sent. */
  readonly fleetSeed: string;
  readonly blockSizeTokens: number;
  /** Names of optional parts of the protocol that it can do. */
  readonly capabilities: readonly string[];
}
