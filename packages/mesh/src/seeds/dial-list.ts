/** Dials addresses for one of several users. */
export interface DialUser {
  dial(address: string): void;
  forget(address: string): void;
}

/**
 * Lets several users dial through one dialer: an address is forgotten when the last of them forgets it.
 *
 * @param dialer an address dialed again is dialed at once when it has no link
 */
export function createDialList(dialer: DialUser): { user(): DialUser } {
  const usersOf = new Map<string, Set<DialUser>>();
  return {
    user() {
      const user: DialUser = {
        dial(address) {
          const users = usersOf.get(address) ?? new Set();
          usersOf.set(address, users.add(user));
          dialer.dial(address);
        },
        forget(address) {
          const users = usersOf.get(address);
          if (!users?.delete(user) || users.size > 0) return;
          usersOf.delete(address);
          dialer.forget(address);
        },
      };
      return user;
    },
  };
}
