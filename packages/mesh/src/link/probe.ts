import type { Scheduler, Transport } from "@espalier/core";
import { createNonce } from "../wire/secure-nonce.ts";
import { type LocalIdentity, Session } from "./handshake.ts";
import { type DialFailure, defaultLinkLimits } from "./link.ts";
import { protocolVersions } from "./links.ts";

export interface ProbeOptions {
  /** `host:port` of a router's mesh listener. */
  readonly address: string;
  /** Running. */
  readonly transport: Transport;
  readonly scheduler: Scheduler;
  /** Its router must have a name that no router has. */
  readonly identity: LocalIdentity;
  /** The own secret first; a single empty one where mesh links are not authenticated: no secret. */
  readonly secrets: readonly string[];
}

export type ProbeResult =
  /** The router would link to one with this identity and secret. */
  | { readonly kind: "agrees"; readonly router: string }
  /** The dialed address has no router, or the router refuses. */
  | DialFailure;

/**
 * Goes through the handshake with a router, up to where both have agreed, and then leaves: no link is made, and the
 * router's members do not change.
 */
export function probePeer({ address, transport, scheduler, identity, secrets }: ProbeOptions): Promise<ProbeResult> {
  return new Promise((resolve) => {
    let session: Session | undefined;
    transport.dial(address, {
      opened(connection) {
        session = new Session({
          ...{ connection, role: "dialer", scheduler, timeoutMs: defaultLinkLimits.handshakeTimeoutMs },
          target: { address, router: undefined, isForgotten: false },
          handshake: {
            ...{ local: identity, versions: protocolVersions, secrets, nonce: createNonce() },
            isOwnNonce: () => false,
          },
          decide(_, { origin }) {
            resolve({ kind: "agrees", router: origin.router });
            return "replaced";
          },
          onAccepted() {},
          onDone: () => undefined,
          onFailed(_, failure) {
            if (failure.kind === "rejected") resolve({ kind: "rejected", ...failure.rejection });
            else resolve({ kind: "unreachable" });
          },
        });
        session.begin();
      },
      frame: (frame) => session?.frame(frame),
      drained: () => {},
      closed(end) {
        if (session) session.closed(end);
        else resolve({ kind: end.kind === "refused" || end.kind === "timeout" ? end.kind : "unreachable" });
      },
    });
  });
}
