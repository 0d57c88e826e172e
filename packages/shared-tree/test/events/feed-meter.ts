import { createSeriesMeter, type SeriesMeter } from "@espalier/testing";

/** The feeds' series by the ends of their names. */
export function createFeedMeter(): SeriesMeter {
  const meter = createSeriesMeter();
  return {
    ...meter,
    value: (name, ...labels) => meter.value(`espalier_kv_feed_${name}`, ...labels),
    get names() {
      return meter.names;
    },
  };
}
