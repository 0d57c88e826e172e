import type { Meter } from "@espalier/common";
import type { TakeoverPlan } from "./plan-takeover.ts";

export interface FeedReaderMeters {
  takenOver(how: Exclude<TakeoverPlan["how"], "wait">): void;
  yielded(): void;
  cut(): void;
  lifeNamed(): void;
}

/** What the readers of all feeds count together. */
export function createFeedReaderMeters(meter: Meter): FeedReaderMeters {
  const takeovers = meter.counter({
    name: "espalier_feed_takeovers_total",
    help: "Times that this router began to journal a feed: by records where the journals end, or by a whole state.",
    labels: ["how"],
  });
  const yields = meter
    .counter({ name: "espalier_feed_yields_total", help: "Times that another router took a feed over from this one." })
    .series();
  const cuts = meter
    .counter({
      name: "espalier_feed_cuts_total",
      help: "Statements of what a target holds that this router journaled.",
    })
    .series();
  const lives = meter
    .counter({
      name: "espalier_feed_lives_total",
      help: "New lives of engines that this router made known to the others.",
    })
    .series();
  const byHow = { records: takeovers.series("records"), state: takeovers.series("state") };
  return {
    takenOver: (how) => byHow[how].add(),
    yielded: () => yields.add(),
    cut: () => cuts.add(),
    lifeNamed: () => lives.add(),
  };
}
