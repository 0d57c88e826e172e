import type { Answer, LoadClient, LoadRequest } from "@espalier/load-driver";

/** What became of one request, as a client of the name of the routers saw it. */
export interface Told extends Answer {
  readonly isStream: boolean;
  /** Addresses that refused the connection before one took it. */
  readonly refused: number;
}

/** Sends requests to the addresses in turn. */
export interface PatientClient {
  send(request: Omit<LoadRequest, "url">, isStream: boolean): Promise<Told>;
}

/** How the router tells how many engines it asked, and when to come again. */
export const attemptsHeader = "x-espalier-attempts";
export const retryAfterHeader = "retry-after";
/** Each address is tried this often before a client gives up. */
const roundsOfAddresses = 2;

/**
 * What HTTP clients do with a name that has several addresses: each connection takes the next one, and a refused one
 * goes on to the one after it. Nothing else is sent again, so whatever else goes wrong is counted.
 */
export function createPatientClient(client: LoadClient, urls: readonly string[]): PatientClient {
  let turn = 0;
  return {
    async send(request, isStream) {
      const first = turn++;
      for (let refused = 0; ; refused++) {
        const url = urls[(first + refused) % urls.length]!;
        const answer = await client.send({ ...request, url, keepHeaders: [attemptsHeader, retryAfterHeader] });
        const isRefused = answer.error?.includes("ECONNREFUSED") ?? false;
        if (!isRefused || refused + 1 >= roundsOfAddresses * urls.length) return { ...answer, isStream, refused };
      }
    },
  };
}
