import { formatMs, formatRate, formatShare, formatShort, unknown } from "../model/format.ts";
import type { Rates } from "../model/rates.ts";
import { element, type Part, setText } from "./dom.ts";

export interface TilesState {
  readonly isLive: boolean;
  readonly rates: Rates;
  readonly inFlight: number;
  readonly queued: number;
  readonly engines: { readonly healthy: number; readonly all: number };
  readonly routers: number;
  readonly blocks: number;
}

interface Tile {
  readonly name: string;
  readonly value: (state: TilesState) => string;
  readonly note: (state: TilesState) => string;
}

const tiles: readonly Tile[] = [
  {
    name: "Requests / s",
    value: ({ rates }) => formatRate(rates.requestsPerS),
    note: ({ rates }) => `${formatShort(rates.outputTokensPerS)} output tokens/s`,
  },
  {
    name: "Cached share",
    value: ({ rates }) => formatShare(rates.cachedShare),
    note: () => "of prompt tokens",
  },
  {
    name: "First byte",
    value: ({ rates }) => formatMs(rates.firstByteMs),
    note: () => "mean over 5 s",
  },
  {
    name: "In flight",
    value: ({ inFlight }) => formatShort(inFlight),
    note: ({ queued }) => (queued > 0 ? `${formatShort(queued)} queued` : "queue empty"),
  },
  {
    name: "Engines",
    value: ({ engines }) => `${engines.healthy} / ${engines.all}`,
    note: ({ blocks }) => `${formatShort(blocks)} known blocks`,
  },
  {
    name: "Routers",
    value: ({ routers }) => String(routers),
    note: ({ rates }) => errorsText(rates),
  },
];

/** `1.2 refused, 0.4 cut a second` */
function errorsText({ failedPerS, cutPerS, refusedPerS }: Rates): string {
  const counted = Object.entries({ failed: failedPerS, cut: cutPerS, refused: refusedPerS })
    .filter(([, perS]) => perS > 0)
    .map(([name, perS]) => `${formatRate(perS)} ${name}`);
  return counted.length === 0 ? "no request failed" : `${counted.join(", ")} a second`;
}

/** The key figures. */
export function createTiles(): Part<TilesState> {
  const node = element("section", { class: "tiles", "aria-label": "Figures" });
  const shown = tiles.map((tile) => {
    const value = element("dd", { class: "value" }, unknown);
    const note = element("dd", { class: "note" }, " ");
    node.append(element("dl", { class: "tile" }, element("dt", {}, tile.name), value, note));
    return { tile, value, note };
  });
  return {
    node,
    update(state) {
      for (const { tile, value, note } of shown) {
        setText(value, state.isLive ? tile.value(state) : unknown);
        setText(note, state.isLive ? tile.note(state) : " ");
      }
    },
  };
}
