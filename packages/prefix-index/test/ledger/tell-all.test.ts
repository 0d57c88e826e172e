import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { EngineCache } from "./engine-cache.ts";
import { FoldingSink } from "./helpers.ts";
import { PromptFeed } from "./prompt-feed.ts";

const shapes = [
  { engineUnits: 1, routerUnits: 1 },
  { engineUnits: 4, routerUnits: 1 },
  { engineUnits: 1, routerUnits: 2 },
  { engineUnits: 1, routerUnits: 4 },
] as const;

function reported(feed: PromptFeed): FoldingSink {
  const sink = new FoldingSink();
  feed.ledger.tellAll(sink);
  return sink;
}

describe.each(shapes)(
  "engine blocks of $engineUnits, router blocks of $routerUnits",
  ({ engineUnits, routerUnits }) => {
    test("what is told at any moment is what the sink was told up to then, and nothing twice", () => {
      for (let seed = 1; seed <= 3; seed++) {
        const feed = new PromptFeed({ engineUnits, routerUnits });
        const random = createSeededRandom(seed);
        const maxDepth = 3 + Math.ceil((2 * routerUnits) / engineUnits);
        const options = { maxDepth, namespaces: ["", "tenant"], tiers: [0, 1, 2], evictsLeaves: false };
        const cache = new EngineCache({ feed, random, ...options });
        for (let event = 0; event < 200; event++) {
          feed.apply(cache.next());
          const sink = reported(feed);
          expect(sink.blocks, `seed ${seed}, event ${event}`).toEqual(feed.sink.blocks);
          expect(sink.holes, `seed ${seed}, event ${event}`).toEqual(feed.sink.holes);
        }
      }
    });

    test("parents come before children although the numbers of nodes are used again", () => {
      const feed = new PromptFeed({ engineUnits, routerUnits });
      const random = createSeededRandom(9);
      const cache = new EngineCache({ feed, random, maxDepth: 12, namespaces: [""], tiers: [0], evictsLeaves: true });
      let longest = 0;
      for (let event = 0; event < 300; event++) {
        feed.apply(cache.next());
        if (event % 10 > 0) continue;
        const names = Array.from(reported(feed).blocks[0]!, (hash) => feed.nameOf(hash));
        for (const [at, name] of names.entries()) {
          longest = Math.max(longest, name.length);
          expect(
            names.slice(0, at).filter((earlier) => earlier.length > name.length && earlier.startsWith(name)),
          ).toEqual([]);
        }
      }
      expect(longest).toBeGreaterThan(routerUnits);
    });
  },
);

test("long chains come in runs, tier by tier, and then the holes", () => {
  const feed = new PromptFeed();
  const text = "abcde".repeat(300);
  feed.apply(feed.stored(text), feed.stored(text.slice(0, 40), { tier: 1 }));
  feed.apply(feed.removed("abc"));
  expect(reported(feed).log).toEqual(["stored 0 1024", "stored 0 475", "stored 1 40", "orphaned 0 2"]);
});
