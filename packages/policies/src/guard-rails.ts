import type { Filter } from "./decision.ts";
import { countingWeight } from "./weights.ts";

/**
 * A candidate may have so many times the mean of requests in flight: near their knee engines that compute the long prompts and
 * those that write the answers part by themselves, which is worth a quarter of the time to first token ...
 */
const mostOverMean = 3;
/** ... and so many more: where few are in flight, who has what a prompt begins with may well have all of them. */
const freeRequests = 16;

/**
 * Leaves out who has far more requests in flight than the mean, for its weight: whatever is believed of caches and times, no
 * hotspot grows past that, for somebody is always at or below the mean (the bound of Mirrokni, Thorup and Zadimoghaddam,
 * "Consistent hashing with bounded loads", 2016, with some slack for small numbers).
 */
export const belowHotspot: Filter = {
  name: "below_hotspot",
  keep({ candidates: { inFlight, weight }, eligible, eligibleCount }) {
    let requests = 0;
    let weights = 0;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      requests += inFlight[index]!;
      weights += countingWeight(weight[index]!);
    }
    const bound = (mostOverMean * (requests + 1)) / weights + freeRequests;
    let kept = 0;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      if (inFlight[index]! <= bound * countingWeight(weight[index]!)) eligible[kept++] = index;
    }
    return kept;
  },
};

/**
 * An engine may have so many times what it runs at once: the wait for a place is short where many answer at once, far shorter than
 * computing a long prompt elsewhere, and is a part of the cost.
 */
const mostOfBatch = 1.25;

/**
 * Leaves out who has a queue: what its cache has is worth less than it seems. An engine that has no KV blocks left is not meant: to
 * send what it holds elsewhere takes blocks there, and drives out what others come back for.
 */
export const shortQueue: Filter = {
  name: "short_queue",
  keep({ candidates: { inFlight, batchLimit }, eligible, eligibleCount }) {
    let kept = 0;
    for (let place = 0; place < eligibleCount; place++) {
      const index = eligible[place]!;
      if (!(inFlight[index]! >= mostOfBatch * batchLimit[index]!)) eligible[kept++] = index;
    }
    return kept;
  },
};
