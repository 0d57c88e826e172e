import { silentMeter } from "@espalier/core";
import type { Origin } from "@espalier/mesh";
import { type NoteChannel, NotePlane } from "@espalier/shared-tree";
import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { createBroadcastLinks } from "../../src/delayed/delayed-tier.ts";
import { arrivalsNear } from "../../src/delayed/delivery.ts";

function makeLinks(delayMs: number) {
  const time = createVirtualTime();
  const { clock, scheduler } = time;
  const later = (reportedMs: number): number => reportedMs + delayMs;
  const times = { factsDueMs: undefined, placementsDueMs: later, loadDueMs: later };
  const createPlane = (self: () => Origin) => new NotePlane({ self, clock, scheduler, meter: silentMeter });
  return {
    time,
    links: createBroadcastLinks({ createPlane, arrivals: [arrivalsNear(times)], clock, scheduler }),
  };
}

/** What a channel has received, as `router text`. */
function heardBy(channel: NoteChannel): string[] {
  const heard: string[] = [];
  channel.onNote(({ origin, bytes }) => heard.push(`${origin.router} ${new TextDecoder().decode(bytes)}`));
  return heard;
}

const post = (channel: NoteChannel, text: string) => channel.post("k", new TextEncoder().encode(text));

describe("routers that leave each other notes", () => {
  test("hear them after the delay, and never their own", () => {
    const { time, links } = makeLinks(6);
    const planes = [0, 1, 2].map((router) => links.planeOf(router));
    const heard = planes.map(heardBy);
    post(planes[0]!, "one");
    time.advance(5);
    expect(heard).toEqual([[], [], []]);
    time.advance(1);
    expect(heard).toEqual([[], ["router-0 one"], ["router-0 one"]]);
  });

  test("of another region hear them later", () => {
    const time = createVirtualTime();
    const { clock, scheduler } = time;
    const times = (delayMs: number) => {
      const later = (sentMs: number): number => sentMs + delayMs;
      return { factsDueMs: undefined, placementsDueMs: later, loadDueMs: later };
    };
    const regions = { engines: [], routers: [0, 0, 1] };
    const arrivals = [
      { ...regions, times: [times(6), times(50)] },
      { ...regions, times: [times(50), times(6)] },
    ];
    const createPlane = (self: () => Origin) => new NotePlane({ self, clock, scheduler, meter: silentMeter });
    const links = createBroadcastLinks({ createPlane, arrivals, clock, scheduler });
    const planes = [0, 1, 2].map((router) => links.planeOf(router));
    const heard = planes.map(heardBy);
    post(planes[0]!, "one");
    time.advance(49);
    expect(heard).toEqual([[], ["router-0 one"], []]);
    time.advance(1);
    expect(heard).toEqual([[], ["router-0 one"], ["router-0 one"]]);
  });

  test("have what was told before when they begin later", () => {
    const { time, links } = makeLinks(6);
    post(links.planeOf(0), "one");
    time.advance(1_000);
    expect(heardBy(links.planeOf(1))).toEqual(["router-0 one"]);
  });

  test("hear nothing more of an epoch that has ended, nor does that hear anything", () => {
    const { time, links } = makeLinks(6);
    const [old, other] = [links.planeOf(0), links.planeOf(1)];
    const [atOld, atOther] = [heardBy(old), heardBy(other)];
    const next = links.planeOf(0);
    post(old, "late");
    post(other, "two");
    post(next, "new");
    time.advance(6);
    expect([atOld, atOther, heardBy(next)]).toEqual([[], ["router-0 new"], ["router-1 two"]]);
  });
});
