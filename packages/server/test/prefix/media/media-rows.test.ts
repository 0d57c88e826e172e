import { createLocalBindings } from "@espalier/routing";
import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import {
  areRuns,
  createMediaRows,
  maxMediaTokens,
  maxRowBytes,
  runsOf,
  tokensOfRuns,
} from "../../../src/prefix/media/media-rows.ts";
import { keptSightings, maxSightingsPerSecond, sightingTtlMs } from "../../../src/prefix/media/media-sightings.ts";
import { createMediaRig } from "./media-rig.ts";

const row = { identifier: "k", back: 2, engineBlockSize: 16, runs: [1, 1, 7, 36, 2, 1] };
const hourMs = 3_600_000;

describe("rows", () => {
  test("come back as they were set, by model and hash, and live as long as they are used", () => {
    const { clock, advance } = createVirtualTime();
    const rows = createMediaRows(createLocalBindings(clock));
    expect(rows.set("m", "h", row)).toBe(true);
    expect(rows.get("m", "h")).toEqual(row);
    expect([rows.get("n", "h"), rows.get("m", "i")]).toEqual([undefined, undefined]);
    advance(20 * hourMs);
    rows.renew("m", "h");
    rows.renew("m", "i");
    advance(20 * hourMs);
    expect(rows.get("m", "h")).toEqual(row);
    advance(5 * hourMs);
    expect(rows.get("m", "h")).toBeUndefined();
  });

  test("one that is too long is not shared, what is no row is none", () => {
    const { clock } = createVirtualTime();
    const store = createLocalBindings(clock);
    const rows = createMediaRows(store);
    const length = maxRowBytes - Buffer.byteLength(JSON.stringify(["", 2, 16, ...row.runs]));
    expect(rows.set("m", "h", { ...row, identifier: "k".repeat(length) })).toBe(true);
    expect(rows.set("m", "i", { ...row, identifier: "k".repeat(length + 1) })).toBe(false);
    for (const text of [
      "",
      "{}",
      "[]",
      '["k",0,16,7,1]',
      '["k",1,16,7]',
      '["k",1,16,-1,1]',
      '["k",1,16,7,0.5]',
      "[1,1,16,7,1]",
    ]) {
      store.set("media\nm\nh", text, 1_000);
      expect(rows.get("m", "h"), text).toBeUndefined();
    }
  });

  test("runs are tokens and how often they follow themselves, up to a bound", () => {
    const tokens = Uint32Array.of(5, 7, 7, 7, 0xffff_ffff, 7);
    expect(runsOf(tokens)).toEqual([5, 1, 7, 3, 0xffff_ffff, 1, 7, 1]);
    expect(tokensOfRuns(runsOf(tokens))).toEqual(tokens);
    expect(runsOf(tokens, 2, 4)).toEqual([7, 2]);
    expect(areRuns([7, maxMediaTokens])).toBe(true);
    expect([areRuns([7, maxMediaTokens + 1]), areRuns([])]).toEqual([false, false]);
  });
});

describe("sightings", () => {
  const at = (rig: ReturnType<typeof createMediaRig>, since = 0) =>
    rig.sightings.after(rig.key, rig.rootOf(undefined), since);

  test("of one place are the latest, for a while", () => {
    const rig = createMediaRig(4);
    for (let image = 0; image <= keptSightings; image++) rig.announce([`image ${image}`, 1, 2, 3, 4]);
    const seen = at(rig).map(({ ranges }) => ranges[0]?.identifier);
    expect(seen.toSorted()).toEqual(Array.from({ length: keptSightings }, (_, image) => `id of image ${image + 1}`));
    expect(at(rig, rig.clock.nowMs() + 1)).toEqual([]);
    rig.time.advance(sightingTtlMs);
    expect(at(rig)).toEqual([]);
  });

  test("are shared up to a number a second, and short ones only", () => {
    const rig = createMediaRig(4);
    for (let image = 0; image < maxSightingsPerSecond; image++) rig.announce(["first", image, 2, 3, 4]);
    const full = at(rig);
    expect(full).toHaveLength(keptSightings);
    rig.announce(["one more", 1, 2, 3, 4]);
    expect(at(rig)).toEqual(full);
    rig.time.advance(1_000);
    rig.announce(["one more", 1, 2, 3, 4]);
    expect(at(rig)).not.toEqual(full);
    const other = createMediaRig(4);
    other.announce(["x".repeat(2_000), 1, 2, 3, 4]);
    expect(at(other)).toEqual([]);
  });

  test("name the place by the chain before the block, and what follows to the end of the image's last block", () => {
    const rig = createMediaRig(4);
    rig.announce([1, 2, 3, 4, 5, "a", 6, 7, 8, 9, 10]);
    expect(at(rig)).toEqual([]);
    const contents = new Uint32Array(2);
    rig.digests.contents(Uint32Array.of(1, 2, 3, 4), 0, 4, 4, contents);
    const chain = new Uint32Array(2);
    rig.digests.mix(rig.rootOf(undefined), contents, 0, 1, chain);
    const prefix = { low: chain[0]!, high: chain[1]! };
    expect(rig.sightings.after(rig.key, prefix, 0)).toMatchObject([
      {
        engineBlockSize: 4,
        ranges: [{ identifier: "id of a", start: 1, lastBlock: 1 }],
        tokens: Uint32Array.of(5, 7, 7, 7, 7, 7, 6, 7),
        blocks: 2,
      },
    ]);
  });

  test("are nothing where another text is in their place", () => {
    const rig = createMediaRig(4);
    rig.announce(["a", 1, 2, 3, 4]);
    const { low, high } = rig.rootOf(undefined);
    const key = `media-seen\n${rig.key}\n${(high >>> 0).toString(16)}.${(low >>> 0).toString(16)}\n0`;
    expect(rig.store.get(key)).toBeDefined();
    for (const text of [
      "",
      "[]",
      '[4,[["a",0]],[7,5],1,2,3]',
      "[4,[],[7],1,2,3]",
      "[4,0,[7,5],1,2,3]",
      "[4,[],[7,5],1,-2,3]",
    ]) {
      rig.store.set(key, text, sightingTtlMs);
      expect(at(rig), text).toEqual([]);
    }
  });
});
