import type { SimRequest } from "../clients/workload.ts";
import type { CreateRival, Rival, RivalParts } from "./rival.ts";
import { createSeats, drawLeast, leastOf, type Seat, sendToSeat } from "./seats.ts";

/**
 * GORGO (arXiv 2602.11688 v2; atoniolo76/GORGO, f624302): one proxy for all regions, with the policies that its authors
 * compare. `gorgo/policy/gorgo.py` has the score, `gorgo/policy/lb_aibrix.py` the others, `specs/c64/eval_ts2` the weights that
 * were learned on one window and frozen for the others.
 */
const weights = { rtt: 0.276, uncached: 1, queued: 0.5 } as const;

/** The proxy reads the engines' metrics so often. */
const scrapeMs = 30_000;

/** `simple-session-affinity` hashes so many of a prompt's first tokens. */
const affinityTokens = 256;

/** Of AIBrix, `prefix-cache`: running requests by which engines may differ, and standard deviations above the mean. */
const prefixLimits = { imbalance: 8, deviations: 2 } as const;

type Choose = (request: SimRequest, seats: readonly Seat[], parts: RivalParts) => Seat;

/** The region of the proxy and of all clients. */
const home = 0;

const byScore: Choose = (request, seats, { placement }) =>
  leastOf(
    seats,
    (seat) =>
      weights.rtt * 2 * placement.delayMs(home, seat.region) +
      weights.uncached * (request.promptTokens - seat.prefixes.matchedTokens(request)) +
      weights.queued * seat.promptTokens,
  )!;

const leastRequest: Choose = (_, seats, parts) =>
  drawLeast(seats, ({ running, inFlight }) => Math.max(running, inFlight), parts);

const leastLoad: Choose = (_, seats, parts) =>
  drawLeast(seats, (seat) => seat.running + seat.waiting + seat.usedTokens + seat.promptTokens, parts);

/** Prompts of one conversation start with the same tokens, and so have the same hash. */
const sessionAffinity: Choose = ({ chain, promptTokens }, seats) => {
  const block = Math.max(0, Math.floor(Math.min(promptTokens, affinityTokens) / 16) - 1);
  return seats[chain[2 * block]! % seats.length]!;
};

const prefixCache: Choose = (request, seats, parts) => {
  const running = seats.map((seat) => seat.running);
  if (Math.max(...running) - Math.min(...running) > prefixLimits.imbalance) return leastRequest(request, seats, parts);
  const matched = seats.map(({ prefixes }) => prefixes.matchedTokens(request));
  const best = Math.max(...matched);
  if (best === 0) return leastRequest(request, seats, parts);
  const mean = running.reduce((sum, one) => sum + one, 0) / seats.length;
  const squares = running.reduce((sum, one) => sum + (one - mean) ** 2, 0);
  const most = mean + prefixLimits.deviations * Math.sqrt(squares / Math.max(1, seats.length - 1));
  const holders = seats.filter((_, at) => matched[at] === best);
  const qualified = holders.filter((seat) => seat.running <= most);
  return drawLeast(qualified.length > 0 ? qualified : holders, (seat) => seat.running, parts);
};

/** The proxy with one of its policies. Clients are where it is. It never holds a request back. */
function createProxy(choose: Choose, parts: RivalParts): Rival {
  const seats = createSeats(parts);
  parts.scheduler.every(scrapeMs, () => {
    for (const seat of seats) seat.read();
  });
  return {
    handle(request, region, ended) {
      parts.scheduler.after(parts.placement.clientDelayMs(region, home), () => {
        const seat = choose(request, seats, parts);
        const predictedTokens = seat.prefixes.matchedTokens(request);
        // The prompt enters the trie when the engine has taken the request and its headers are back.
        parts.scheduler.after(2 * parts.placement.delayMs(home, seat.region), () => seat.prefixes.add(request));
        sendToSeat(parts, request, { seat, path: [region, home], predictedTokens }, ended);
      });
    },
  };
}

export const gorgoRivals: Readonly<Record<string, CreateRival>> = {
  gorgo: (parts) => createProxy(byScore, parts),
  gorgo_session_affinity: (parts) => createProxy(sessionAffinity, parts),
  gorgo_least_load: (parts) => createProxy(leastLoad, parts),
  gorgo_least_request: (parts) => createProxy(leastRequest, parts),
  gorgo_prefix_cache: (parts) => createProxy(prefixCache, parts),
};
