import { systemClock, systemScheduler } from "@espalier/core";
import { createVirtualTime } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { pauseFor, untilNothingMissing } from "../src/support/until.ts";
import { untilKnown } from "../src/support/until-known.ts";
import { type Stoppable, startAnswering } from "./rig.ts";

const parts: Stoppable[] = [];
afterEach(async () => {
  for (const part of parts.splice(0)) await part.stop();
});

test("waiting ends with the first answer that nothing is missing", async () => {
  const time = createVirtualTime();
  let asked = 0;
  const missing = async (): Promise<string | undefined> => {
    asked += 1;
    return asked < 4 ? "it is not there" : undefined;
  };
  let done = false;
  const waiting = untilNothingMissing(missing, 1_000, time).then(() => {
    done = true;
  });
  await time.advanceAsync(59);
  expect([asked, done]).toEqual([3, false]);
  await time.advanceAsync(1);
  await waiting;
  expect([asked, done]).toEqual([4, true]);
  expect(time.pendingCount).toBe(0);
});

test("nothing is waited for when nothing is missing at first", async () => {
  const time = createVirtualTime();
  await untilNothingMissing(async () => undefined, 1_000, time);
  expect(time.clock.nowMs()).toBe(0);
});

test("what is still missing at the deadline is the error, and nothing is asked afterwards", async () => {
  const time = createVirtualTime();
  let asked = 0;
  const waiting = untilNothingMissing(
    async () => {
      asked += 1;
      return `${10 - asked} of 10 are missing`;
    },
    100,
    time,
  );
  const ended = expect(waiting).rejects.toThrow("after 100 ms 4 of 10 are missing");
  await time.advanceAsync(1_000);
  await ended;
  expect(asked).toBe(6);
  expect(time.pendingCount).toBe(0);
});

test("an error of who is asked is not taken for an answer", async () => {
  const broken = (): Promise<undefined> => Promise.reject(new Error("nobody is there"));
  await expect(untilNothingMissing(broken, 1_000, createVirtualTime())).rejects.toThrow("nobody is there");
});

test("a pause lasts as long as asked for", async () => {
  const time = createVirtualTime();
  let woken = false;
  const pause = pauseFor(2_000, time.scheduler).then(() => {
    woken = true;
  });
  await time.advanceAsync(1_999);
  expect(woken).toBe(false);
  await time.advanceAsync(1);
  await pause;
  expect(woken).toBe(true);
});

interface RouterPages {
  readonly members?: readonly { readonly state: string; readonly isLinked: boolean }[];
  readonly feeds?: readonly { readonly state: string }[];
  readonly status?: number;
}

/** A router that shows the pages in turn, a pair for each time that its mesh is asked for; the last one stays. */
function startRouter(pages: readonly RouterPages[]): Promise<string> {
  let at = -1;
  return startAnswering(
    (request, response) => {
      const isMesh = request.url === "/admin/mesh";
      if (isMesh) at = Math.min(at + 1, pages.length - 1);
      const { members, feeds = [], status = 200 } = pages[Math.max(0, at)] ?? {};
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify(isMesh ? { backend: members ? "peers" : "off", members } : { feeds }));
    },
    (part) => void parts.push(part),
  );
}

const ports = { clock: systemClock, scheduler: systemScheduler };
/** A clock on which every look takes so long that the second one is the last. */
function portsThatTimeOut(): typeof ports {
  let nowMs = 0;
  return {
    ...ports,
    clock: {
      ...systemClock,
      nowMs: () => {
        nowMs += 10_000;
        return nowMs;
      },
    },
  };
}

const alive = { state: "alive", isLinked: true };
const live = { state: "live" };

test("a router is known to be linked when it says so of as many as there are", async () => {
  const url = await startRouter([{ members: [] }, { members: [alive] }, { members: [alive, alive] }]);
  await untilKnown(url, { members: 2, feeds: 0 }, ports);
});

test("a router that shares nothing needs no links", async () => {
  await untilKnown(await startRouter([{}]), { members: 0, feeds: 0 }, ports);
});

test.each([
  { what: "dead", member: { state: "dead", isLinked: true } },
  { what: "suspected", member: { state: "suspect", isLinked: true } },
  { what: "not linked", member: { state: "alive", isLinked: false } },
])("a member that is $what does not count", async ({ member }) => {
  const url = await startRouter([{ members: [alive, member] }]);
  await expect(untilKnown(url, { members: 2, feeds: 0 }, portsThatTimeOut())).rejects.toThrow(
    `after 15000 ms the router at ${url} is linked with 1 of 2 others`,
  );
});

test("feeds are waited for until all of them are live", async () => {
  const url = await startRouter([
    { feeds: [] },
    { feeds: [live, { state: "replaying" }] },
    { feeds: [live, { state: "partial" }] },
    { feeds: [live, live] },
  ]);
  await untilKnown(url, { members: 0, feeds: 2 }, ports);
});

test("feeds that never come live are an error that counts them", async () => {
  const url = await startRouter([{ members: [alive], feeds: [live, { state: "stale" }] }]);
  await expect(untilKnown(url, { members: 1, feeds: 2 }, portsThatTimeOut())).rejects.toThrow(
    `after 15000 ms the router at ${url} knows of 1 of 2 live feeds`,
  );
});

test("a page that cannot be had is an error with its address", async () => {
  const url = await startRouter([{ status: 503 }]);
  await expect(untilKnown(url, { members: 1, feeds: 0 }, ports)).rejects.toThrow(`${url}/admin/mesh answered 503`);
});
