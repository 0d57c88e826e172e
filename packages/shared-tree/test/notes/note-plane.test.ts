import { asRouterId, createSeededRandom } from "@espalier/core";
import { joinPlanes, type PlaneExchange } from "@espalier/mesh";
import { createSeriesMeter, createVirtualTime, type VirtualTime } from "@espalier/testing";
import { beforeEach, describe, expect, test } from "vitest";
import { maxNoteBytes, writeNoteFrame } from "../../src/notes/note-frame.ts";
import { defaultNoteLimits, type Note, type NoteLimits, NotePlane } from "../../src/notes/note-plane.ts";

let time: VirtualTime;

beforeEach(() => {
  time = createVirtualTime();
  time.advance(1_000);
});

interface Router {
  readonly plane: NotePlane;
  readonly meter: ReturnType<typeof createSeriesMeter>;
  readonly frames: Uint8Array[];
  readonly heard: Note[];
  epoch: number;
}

function routerOf(name: string, limits: Partial<NoteLimits> = {}): Router {
  const meter = createSeriesMeter();
  const router: { epoch: number } = { epoch: 1 };
  const self = () => ({ router: asRouterId(name), epoch: router.epoch });
  const { clock, scheduler } = time;
  const plane = new NotePlane({ self, clock, scheduler, meter, limits });
  const frames: Uint8Array[] = [];
  const heard: Note[] = [];
  plane.exchange.onFrame((frame) => frames.push(frame));
  plane.onNote((note) => heard.push(note));
  return Object.assign(router, { plane, meter, frames, heard });
}

const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);
const textOf = ({ bytes }: Pick<Note, "bytes">): string => new TextDecoder().decode(bytes);
const receiveAll = (by: Router, frames: readonly Uint8Array[]) =>
  frames.map((frame) => by.plane.exchange.receive(frame));
const isNews = (by: Router, frame: Uint8Array) => by.plane.exchange.receive(frame)?.isNews;

/** What a router remembers, whoever told it. */
function remembered(by: Router): readonly string[] {
  const notes: string[] = [];
  by.plane.onNote((note) => notes.push(`${note.origin.router} ${note.key} ${textOf(note)}`))();
  return notes.sort();
}

test("a note reaches the others as it was posted, once", () => {
  const [a, b] = [routerOf("a"), routerOf("b")];
  expect(a.plane.post("k", bytesOf("one"))).toBe(true);
  expect(a.frames).toHaveLength(1);
  expect(b.plane.exchange.receive(a.frames[0]!)).toEqual({ origin: { router: "a", epoch: 1 }, isNews: true });
  expect(isNews(b, a.frames[0]!)).toBe(false);
  expect(b.heard.map(textOf)).toEqual(["one"]);
  expect([
    b.meter.value("espalier_shared_estimates"),
    b.meter.value("espalier_shared_estimate_frames_received_total", "news"),
  ]).toEqual([1, 1]);
  expect(b.meter.value("espalier_shared_estimate_frames_received_total", "stale")).toBe(1);
});

test("a later note takes the place of an earlier one, in whatever order they come", () => {
  const [a, b] = [routerOf("a"), routerOf("b")];
  for (const text of ["one", "two", "three"]) a.plane.post("k", bytesOf(text));
  receiveAll(b, [a.frames[1]!, a.frames[2]!, a.frames[0]!]);
  expect(b.heard.map(textOf)).toEqual(["two", "three"]);
  expect(remembered(b)).toEqual(["a k three"]);
});

test("a later epoch of a router goes on over what its earlier one wrote, and only as far as it writes", () => {
  const [a, b] = [routerOf("a"), routerOf("b")];
  a.plane.post("k", bytesOf("old"));
  a.plane.post("other", bytesOf("old"));
  const again = routerOf("a");
  again.epoch = 2;
  again.plane.post("k", bytesOf("new"));
  receiveAll(b, [...again.frames, ...a.frames]);
  expect(remembered(b)).toEqual(["a k new", "a other old"]);
  const c = routerOf("c");
  receiveAll(
    c,
    b.plane.exchange.relayFrames().map(({ frame }) => frame),
  );
  expect(remembered(c)).toEqual(remembered(b));
});

test("of one kind too, notes of an earlier epoch stay and arrive until the later one writes under their keys", () => {
  const [a, again] = [routerOf("a"), routerOf("a")];
  for (const key of ["k/x", "k/y"]) a.plane.post(key, bytesOf("old"));
  again.epoch = 2;
  again.plane.post("k/x", bytesOf("new"));
  for (const frames of [
    [...a.frames, ...again.frames],
    [...again.frames, ...a.frames],
  ]) {
    const b = routerOf("b");
    receiveAll(b, frames);
    expect(remembered(b)).toEqual(["a k/x new", "a k/y old"]);
  }
});

test("own notes that come back are no news, those of an earlier epoch neither", () => {
  const a = routerOf("a");
  a.plane.post("k", bytesOf("one"));
  expect(isNews(a, a.frames[0]!)).toBe(false);
  a.epoch = 2;
  expect(isNews(a, a.frames[0]!)).toBe(false);
  expect(a.heard).toEqual([]);
});

describe.each([1, 2, 3, 4, 5])("after any exchange of frames, seed %i,", (seed) => {
  test("all remember the latest of everybody, whatever was lost, doubled or late", () => {
    const random = createSeededRandom(seed);
    const names = ["a", "b", "c", "d"];
    const routers = names.map((name) => routerOf(name, { refreshMs: 5_000 }));
    for (const { plane } of routers) plane.start();
    const latest = new Map<string, string>();
    for (let step = 0; step < 200; step++) {
      time.advance(random.integer(100));
      const from = random.integer(names.length);
      const key = `k${random.integer(3)}`;
      routers[from]!.plane.post(key, bytesOf(`${step}`));
      latest.set(`${names[from]} ${key}`, `${step}`);
      const sent = routers[random.integer(names.length)]!.frames;
      const frame = sent[random.integer(Math.max(1, sent.length))];
      if (frame) for (const by of routers) if (random.integer(2) === 0) by.plane.exchange.receive(frame);
    }
    // What was lost is told again by itself.
    for (const router of routers) router.frames.length = 0;
    time.advance(5_000);
    for (const { frames } of routers)
      for (const frame of frames) for (const by of routers) by.plane.exchange.receive(frame);
    for (const [at, by] of routers.entries()) {
      const others = [...latest].filter(([what]) => !what.startsWith(names[at]!));
      expect(remembered(by)).toEqual(others.map(([what, text]) => `${what} ${text}`).sort());
    }
  });
});

describe("ages", () => {
  test("grow where a note lies, and go with it", () => {
    const [a, b, c] = [routerOf("a"), routerOf("b"), routerOf("c")];
    a.plane.post("k", bytesOf("one"));
    time.advance(400);
    receiveAll(b, a.plane.exchange.fullFrames());
    expect(b.heard[0]?.ageMs).toBe(400);
    time.advance(600);
    receiveAll(
      c,
      b.plane.exchange.relayFrames().map(({ frame }) => frame),
    );
    expect(c.heard[0]?.ageMs).toBe(1_000);
    const late: number[] = [];
    time.advance(50);
    c.plane.onNote(({ ageMs }) => late.push(ageMs));
    expect(late).toEqual([1_050]);
  });

  test("a note that is told again is as old as when it was posted, and news to those who pass it on", () => {
    const [a, b] = [routerOf("a"), routerOf("b")];
    a.plane.start();
    a.plane.post("k", bytesOf("one"));
    receiveAll(b, a.frames.splice(0));
    time.advance(defaultNoteLimits.refreshMs);
    expect(a.frames).toHaveLength(1);
    expect(isNews(b, a.frames[0]!)).toBe(true);
    expect(b.heard.map(({ ageMs }) => ageMs)).toEqual([0, defaultNoteLimits.refreshMs]);
    a.plane.stop();
    expect(time.pendingCount).toBe(0);
  });

  test("that are too great end in oblivion, of notes that lie there and of those that come", () => {
    const { forgetMs, refreshMs } = defaultNoteLimits;
    const [a, b, c] = [routerOf("a"), routerOf("b"), routerOf("c")];
    a.plane.post("k", bytesOf("one"));
    receiveAll(b, a.frames);
    time.advance(forgetMs + 1);
    expect(receiveAll(c, a.plane.exchange.fullFrames()).map((received) => received?.isNews)).toEqual([false]);
    b.plane.start();
    time.advance(refreshMs);
    expect(remembered(b)).toEqual([]);
    expect(b.meter.value("espalier_shared_estimates")).toBe(0);
    b.plane.stop();
  });
});

// A note was as old as its first posting. Half an hour after its start no router that came told apart from its own what
// another one runs, and after half an hour without a request to an overflow backend none knew what had been spent there.
test("a lasting note reaches routers that come long after it was posted", () => {
  const [a, late] = [routerOf("a"), routerOf("late")];
  a.plane.start();
  a.plane.post("lasts", bytesOf("1"), { isLasting: true });
  a.plane.post("ends", bytesOf("2"));
  time.advance(10 * defaultNoteLimits.forgetMs);
  receiveAll(late, a.plane.exchange.fullFrames());
  expect(remembered(late)).toEqual(["a lasts 1"]);
  a.plane.stop();
});

describe("bounds", () => {
  test("a router posts so many notes of a kind, and one more not, which is counted", () => {
    const a = routerOf("a", { maxNotes: 2 });
    const keys = ["k/x", "k/y", "k/z", "k/x"];
    expect(keys.map((key) => a.plane.post(key, bytesOf("1")))).toEqual([true, true, false, true]);
    expect(a.plane.exchange.fullFrames()).toHaveLength(1);
    expect(a.meter.value("espalier_shared_estimates_dropped_total", "k")).toBe(1);
    expect(a.plane.refused()).toEqual([{ kind: "k", count: 1 }]);
  });

  // All notes of a router shared one bound. What it learned of 60 models left no place for what it had spent, for its
  // release, or for the load that autoscaling goes by, and nobody noticed.
  test("a kind with as many notes as there may be takes no place from another, here nor elsewhere", () => {
    const [a, b] = [routerOf("a"), routerOf("b")];
    for (let at = 0; at < defaultNoteLimits.maxNotes; at++) a.plane.post(`times/${at}`, new Uint8Array(1_000));
    expect(a.plane.post("times/more", bytesOf("1"))).toBe(false);
    const others = ["overflow", "release", "demand", "credits", "admin", "question", "answer", "roles/m"];
    expect(others.map((key) => a.plane.post(key, bytesOf(key)))).toEqual(others.map(() => true));
    receiveAll(b, a.frames.splice(0));
    expect(others.filter((key) => !b.heard.some((note) => note.key === key))).toEqual([]);
    expect(remembered(b)).toHaveLength(defaultNoteLimits.maxNotes + others.length);
    const c = routerOf("c");
    const relayed = b.plane.exchange.relayFrames().map(({ frame }) => frame);
    receiveAll(c, relayed.reverse());
    expect(remembered(c)).toEqual(remembered(b));
    a.plane.post("overflow", bytesOf("later"));
    receiveAll(b, a.frames);
    expect(remembered(b)).toContain("a overflow later");
  });

  test("of one router and kind as many are kept, the latest ones, in whatever order they come", () => {
    const a = routerOf("a", { maxNotes: 3 });
    for (const key of ["k/x", "k/y", "k/z"]) a.plane.post(key, bytesOf("1"));
    for (const frames of [a.frames, a.frames.toReversed()]) {
      const b = routerOf("b", { maxNotes: 2 });
      receiveAll(b, frames);
      expect(remembered(b)).toEqual(["a k/y 1", "a k/z 1"]);
    }
    const b = routerOf("b", { maxNotes: 2 });
    receiveAll(b, a.frames.toReversed());
    expect(b.meter.value("espalier_shared_estimate_frames_received_total", "refused")).toBe(1);
    a.plane.post("k/x", bytesOf("2"));
    receiveAll(b, a.frames);
    expect(remembered(b)).toEqual(["a k/x 2", "a k/z 1"]);
  });

  test("kinds beyond the bound are refused, and others go on", () => {
    const [a, b] = [routerOf("a"), routerOf("b", { maxKinds: 2 })];
    for (const key of ["x", "y/1", "z"]) a.plane.post(key, bytesOf("1"));
    receiveAll(b, a.frames);
    a.plane.post("y/2", bytesOf("2"));
    receiveAll(b, a.frames);
    expect(remembered(b)).toEqual(["a x 1", "a y/1 1", "a y/2 2"]);
  });

  test("what others spend is kept beside as many other kinds as there may be", () => {
    const [a, b] = [routerOf("a"), routerOf("b")];
    for (let at = 0; at <= defaultNoteLimits.maxKinds; at++) a.plane.post(`kind-${at}`, bytesOf("1"));
    a.plane.post("overflow", bytesOf("2"));
    receiveAll(b, a.frames);
    expect(remembered(b)).toHaveLength(defaultNoteLimits.maxKinds + 1);
    expect(remembered(b)).toContain("a overflow 2");
  });

  test("a note that is too old to be of use gives its place to another one, here and elsewhere", () => {
    const [a, b] = [routerOf("a", { maxNotes: 2 }), routerOf("b", { maxNotes: 2 })];
    for (const { plane } of [a, b]) plane.start();
    a.plane.post("k/gone", bytesOf("1"));
    time.advance(defaultNoteLimits.forgetMs / 2);
    a.plane.post("k/stays", bytesOf("2"));
    expect(a.plane.post("k/new", bytesOf("3"))).toBe(false);
    time.advance(defaultNoteLimits.forgetMs / 2 + defaultNoteLimits.refreshMs);
    expect(a.plane.post("k/new", bytesOf("3"))).toBe(true);
    receiveAll(b, a.frames);
    expect(remembered(b)).toEqual(["a k/new 3", "a k/stays 2"]);
    for (const { plane } of [a, b]) plane.stop();
  });

  test("of routers beyond the bound the one that wrote longest ago is forgotten", () => {
    const b = routerOf("b", { maxOrigins: 2 });
    for (const name of ["c", "d", "e"]) {
      const from = routerOf(name);
      from.plane.post("k", bytesOf(name));
      receiveAll(b, from.frames);
      time.advance(10);
    }
    expect(remembered(b)).toEqual(["d k d", "e k e"]);
  });

  test("of routers beyond the bound the first to come stays when it wrote again", () => {
    const b = routerOf("b", { maxOrigins: 2 });
    const [c, d, e] = [routerOf("c"), routerOf("d"), routerOf("e")];
    for (const from of [c, d, c, e]) {
      from.plane.post("k", bytesOf("1"));
      receiveAll(b, from.frames.splice(0));
      time.advance(10);
    }
    expect(remembered(b)).toEqual(["c k 1", "e k 1"]);
  });

  test("of bytes beyond the bound those of routers that wrote longest ago go, and never the writer's own", () => {
    const b = routerOf("b", { maxHeldBytes: 1_000 });
    const [c, d] = [routerOf("c"), routerOf("d")];
    c.plane.post("k", new Uint8Array(600));
    time.advance(10);
    d.plane.post("k", new Uint8Array(600));
    receiveAll(b, [...c.frames, ...d.frames]);
    const held: string[] = [];
    b.plane.onNote(({ origin }) => held.push(origin.router));
    expect(held).toEqual(["d"]);
    d.plane.post("k", new Uint8Array(1_200));
    expect(receiveAll(b, d.frames.slice(1)).map((received) => received?.isNews)).toEqual([false]);
  });

  test("a note or key that is too long cannot be posted, and one that is just not can", () => {
    const a = routerOf("a");
    expect(a.plane.post("ü".repeat(127), new Uint8Array(maxNoteBytes))).toBe(true);
    expect(() => a.plane.post("ü".repeat(128), new Uint8Array(1))).toThrow(RangeError);
    expect(() => a.plane.post("k", new Uint8Array(maxNoteBytes + 1))).toThrow(RangeError);
  });

  test("a frame that cannot be read is counted", () => {
    const a = routerOf("a");
    expect(() => a.plane.exchange.receive(Uint8Array.of(1, 2))).toThrow();
    expect(a.meter.value("espalier_shared_estimate_frames_received_total", "invalid")).toBe(1);
  });
});

describe("exchanges that are joined", () => {
  const scripted = (kind: number): PlaneExchange & { readonly received: Uint8Array[]; tell(): void } => {
    const received: Uint8Array[] = [];
    const listeners = new Set<(frame: Uint8Array) => void>();
    const origin = { router: asRouterId("x"), epoch: kind };
    return {
      received,
      tell: () => {
        for (const listener of listeners) listener(Uint8Array.of(kind));
      },
      onFrame(listener) {
        listeners.add(listener);
        return () => listeners.delete(listener);
      },
      fullFrames: () => [Uint8Array.of(kind, 1)],
      relayFrames: () => [{ origin, frame: Uint8Array.of(kind, 2) }],
      receive(frame) {
        received.push(frame);
        return { origin, isNews: true };
      },
    };
  };

  test("ask whether a link may speak for an origin, and pass on how long it takes", () => {
    const asked: unknown[] = [];
    const plane: PlaneExchange = {
      ...scripted(1),
      receive(_, isCredible, linkDelayMs) {
        asked.push(isCredible?.({ router: asRouterId("x"), epoch: 7 }), linkDelayMs);
        return undefined;
      },
    };
    joinPlanes(new Map([[1, plane]])).receive(Uint8Array.of(1), ({ epoch }) => epoch < 7, 12);
    expect(asked).toEqual([false, 12]);
  });

  test("give each its frames, and ignore what is of no kind that is known", () => {
    const [one, two] = [scripted(1), scripted(2)];
    const joined = joinPlanes(
      new Map([
        [1, one],
        [2, two],
      ]),
    );
    expect(joined.receive(Uint8Array.of(2, 7))?.origin.epoch).toBe(2);
    expect(joined.receive(Uint8Array.of(3))).toBeUndefined();
    expect(joined.receive(new Uint8Array())).toBeUndefined();
    expect([one.received.length, two.received.length]).toEqual([0, 1]);
    expect(joined.fullFrames().map(([kind]) => kind)).toEqual([1, 2]);
    expect(joined.relayFrames().map(({ frame }) => frame[0])).toEqual([1, 2]);
    const reported: number[] = [];
    const cancel = joined.onFrame(([kind]) => reported.push(kind!));
    two.tell();
    one.tell();
    cancel();
    one.tell();
    expect(reported).toEqual([2, 1]);
  });
});

test("a frame of several notes is news when one of them is", () => {
  const b = routerOf("b");
  const origin = { router: asRouterId("a"), epoch: 1 };
  const noteOf = (key: string, counter: number) => ({ key, counter, ageMs: 0, bytes: bytesOf(key) });
  expect(isNews(b, writeNoteFrame({ origin, notes: [noteOf("x", 2)] }))).toBe(true);
  expect(isNews(b, writeNoteFrame({ origin, notes: [noteOf("x", 1), noteOf("y", 3)] }))).toBe(true);
  expect(isNews(b, writeNoteFrame({ origin, notes: [noteOf("y", 3), noteOf("x", 1)] }))).toBe(false);
});

test("a listener that throws keeps no note from others, nor from being kept", () => {
  const [a, b] = [routerOf("a"), routerOf("b")];
  const before: string[] = [];
  const c = routerOf("c");
  c.plane.onNote(({ key }) => {
    before.push(key);
    if (key === "x") throw new TypeError("a defect");
  });
  const after: string[] = [];
  c.plane.onNote(({ key }) => after.push(key));
  for (const key of ["x", "y"]) a.plane.post(key, bytesOf("1"));
  expect(() => receiveAll(c, a.plane.exchange.fullFrames())).toThrow(TypeError);
  expect([before, after]).toEqual([
    ["x", "y"],
    ["x", "y"],
  ]);
  receiveAll(
    b,
    c.plane.exchange.relayFrames().map(({ frame }) => frame),
  );
  expect(remembered(b)).toEqual(["a x 1", "a y 1"]);
});
