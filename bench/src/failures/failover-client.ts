import type { Answer, LoadClient, LoadRequest } from "@espalier/simulator";

/** The outcome of one request, as seen by a client that uses the routers' name. */
export interface Outcome extends Answer {
  readonly isStream: boolean;
  /** Addresses that refused the connection before one accepted it. */
  readonly refused: number;
}

/** Sends requests to the addresses in turn. */
export interface FailoverClient {
  send(request: Omit<LoadRequest, "url">, isStream: boolean): Promise<Outcome>;
}

/** Headers in which the router reports how many engines it asked, which of them failed the request, and when to retry. */
export const attemptsHeader = "x-espalier-attempts";
export const failedEngineHeader = "x-espalier-failed-engine";
export const retryAfterHeader = "retry-after";
const kept = [attemptsHeader, failedEngineHeader, retryAfterHeader];
/** Attempts per address before a client gives up. */
const roundsOfAddresses = 2;

/**
 * Imitates HTTP clients for a name with several addresses. Each connection takes the next address; if it is refused, it
 * tries the one after. Nothing else is sent again, so every other failure is counted.
 */
export function createFailoverClient(client: LoadClient, urls: readonly string[]): FailoverClient {
  let turn = 0;
  return {
    async send(request, isStream) {
      const first = turn++;
      for (let refused = 0; ; refused++) {
        const url = urls[(first + refused) % urls.length]!;
        const answer = await client.send({ ...request, url, keepHeaders: kept });
        const isRefused = answer.error?.includes("ECONNREFUSED") ?? false;
        if (!isRefused || refused + 1 >= roundsOfAddresses * urls.length) return { ...answer, isStream, refused };
      }
    },
  };
}
