// Requests in the engine's own queue come first; an engine that reports none counts as empty. Nearly equal ones by our requests there.
const queue = {
  name: "queue",
  score({ candidates, eligible, eligibleCount }, out) {
    for (const index of eligible.subarray(0, eligibleCount)) out[index] = candidates.waiting[index] || 0;
  },
};
export const policies = {
  short_queue: {
    terms: [
      { scorer: queue, weight: 1 },
      { scorer: "requests", weight: 0.1 },
    ],
  },
};
