import type { Cancel, Scheduler, Startable } from "@espalier/common";
import type { Replica } from "@espalier/replication";
import type { Backend } from "../exchange/backend.ts";
import type { Ownership } from "./ownership.ts";

export interface JoinedBackendParts {
  readonly backend: Backend;
  readonly replica: Pick<Replica, "setMembers" | "onClaims">;
  readonly ownership: Ownership;
  readonly scheduler: Scheduler;
}

/** How often a router that joins looks whether it knows all that its peers do. */
const joinCheckMs = 20;

/**
 * A backend that tells replica and ownership who lives, and says goodbye at the end. Feeds are claimed only when the
 * router knows all that its peers do: whoever decided before it knew the claims of others would claim every feed.
 */
export function joinedBackend({ backend, replica, ownership, scheduler }: JoinedBackendParts): Startable {
  let cancelCheck: Cancel = () => {};
  let isStopped = false;
  const changed = (): void => {
    replica.setMembers(backend.members());
    ownership.membersChanged();
  };
  backend.onMembers(changed);
  replica.onClaims((target) => ownership.claimsChanged(target));
  const startOwnership = (): void => {
    if (backend.waitingFor.length > 0) cancelCheck = scheduler.after(joinCheckMs, startOwnership);
    else ownership.start();
  };
  return {
    async start() {
      await backend.start();
      if (isStopped) return;
      changed();
      startOwnership();
    },
    async stop() {
      isStopped = true;
      cancelCheck();
      ownership.stop();
      await backend.leave();
      await backend.stop();
    },
  };
}
