import { asRouterId, createSeededRandom, EspalierError, type Meter, silentLogger, silentMeter } from "@espalier/core";
import { createCountingMeter, createVirtualTime, type VirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import type { Link } from "../../src/link/link.ts";
import type { MemberRecord } from "../../src/membership/member-table.ts";
import { Membership, type MembershipChange } from "../../src/membership/membership.ts";
import { decodeMembership, encodeMembership, type MembershipMessage } from "../../src/membership/membership-frames.ts";
import type { LinkEnd } from "../../src/wire/link-frames.ts";
import { createMesh, namesOf } from "./network.ts";

/** A peer that the test speaks for. */
interface Peer {
  readonly link: Link;
  readonly sent: MembershipMessage[];
  readonly closed: LinkEnd[];
  say(message: MembershipMessage): void;
  /** The messages of a kind since the last time. */
  take<Kind extends MembershipMessage["kind"]>(kind: Kind): (MembershipMessage & { kind: Kind })[];
  answersPings: boolean;
}

interface Single {
  readonly time: VirtualTime;
  readonly membership: Membership;
  readonly dialed: string[];
  readonly forgotten: string[];
  readonly changes: MembershipChange[];
  lagMs: number;
  isCutOff: boolean;
  epoch: number;
  peer(name: string, epoch?: number, capabilities?: readonly string[]): Peer;
  state(name: string): string | undefined;
}

const originOf = (name: string, epoch = 1) => ({ router: asRouterId(name), epoch });

function recordOf(name: string, incarnation: number, links: readonly string[], more: Partial<MemberRecord> = {}) {
  const rest = { hasLeft: false, isDraining: false, address: `${name}:1`, unreachable: [] };
  return { origin: originOf(name), incarnation, links, ...rest, ...more };
}

/** One router, "self", of which everything around it is the test's. */
function createSingle(limits = {}, meter: Meter = silentMeter, region?: string): Single {
  const time = createVirtualTime();
  const dialed: string[] = [];
  const forgotten: string[] = [];
  const changes: MembershipChange[] = [];
  const single: Omit<Single, "membership"> = {
    time,
    dialed,
    forgotten,
    changes,
    lagMs: 0,
    isCutOff: false,
    epoch: 1,
    state: (name) => membership.member(asRouterId(name))?.state,
    peer(name, epoch = 1, capabilities = []) {
      const sent: MembershipMessage[] = [];
      const closed: LinkEnd[] = [];
      const link = {
        peer: { origin: originOf(name, epoch), address: `${name}:1`, version: 1, capabilities },
        roundTripMs: Number.NaN,
        send(_channel: string, frame: Uint8Array) {
          const message = decodeMembership(frame);
          sent.push(message);
          if (message.kind === "ping" && peer.answersPings) {
            time.scheduler.after(1, () => peer.say({ kind: "ack", number: message.number }));
          }
          return true;
        },
        close: (why: LinkEnd) => closed.push(why),
      } as unknown as Link;
      const peer: Peer = {
        link,
        sent,
        closed,
        answersPings: true,
        say(message) {
          for (const frame of encodeMembership(message)) membership.receive(link, frame);
        },
        take(kind) {
          const isOfKind = (message: MembershipMessage): message is MembershipMessage & { kind: typeof kind } =>
            message.kind === kind;
          const taken = sent.filter(isOfKind);
          sent.splice(0);
          return taken;
        },
      };
      membership.linkUp(link);
      return peer;
    },
  };
  const membership = new Membership({
    self: () => originOf("self", single.epoch),
    address: () => "self:1",
    region,
    clock: time.clock,
    scheduler: time.scheduler,
    random: createSeededRandom(1),
    lagMs: () => single.lagMs,
    cpuMs: () => 0,
    isCutOff: () => single.isCutOff,
    dial: (address) => dialed.push(address),
    forget: (address) => forgotten.push(address),
    meter,
    logger: silentLogger,
    limits,
  });
  membership.start();
  membership.onChange((change) => changes.push(change));
  return Object.assign(single, { membership });
}

test("regions go to routers that read them, and records without one to those of earlier versions", () => {
  const single = createSingle({}, silentMeter, "eu");
  const [knows, older] = [single.peer("knows", 1, ["regions"]), single.peer("older")];
  const regionOf = (name: string) => single.membership.member(asRouterId(name))?.region;
  expect(regionOf("knows")).toBe("");
  knows.say({ kind: "records", records: [recordOf("knows", 1, ["self"], { region: "us" })] });
  older.say({ kind: "records", records: [recordOf("older", 1, ["self"])] });
  expect([regionOf("knows"), regionOf("older")]).toEqual(["us", undefined]);
  single.time.advance(50);
  const regionsSaid = (peer: Peer) =>
    new Set(
      peer.take("records").flatMap(({ records }) => records.map(({ origin, region }) => `${origin.router} ${region}`)),
    );
  expect(regionsSaid(knows)).toEqual(new Set(["self eu", "older undefined"]));
  expect(regionsSaid(older)).toEqual(new Set(["self undefined", "knows undefined"]));
});

test("while the medium of all links is away members stay alive without one, and are suspected and down once it is back", () => {
  const single = createSingle();
  const peer = single.peer("p");
  single.time.advance(100);
  single.isCutOff = true;
  single.membership.linkDown(peer.link, "reset");
  single.time.advance(60_000);
  expect(single.membership.members()).toMatchObject([{ state: "alive", isLinked: false }]);
  single.isCutOff = false;
  single.time.advance(200);
  expect(single.state("p")).toBe("suspect");
  single.time.advance(1_700);
  expect(single.state("p")).toBe("down");
});

test("who hears that it is suspected says under a higher incarnation that it lives", () => {
  const single = createSingle();
  const peer = single.peer("p");
  single.time.advance(100);
  const before = peer
    .take("records")
    .at(-1)!
    .records.find(({ origin }) => origin.router === "self")!;
  peer.say({
    kind: "claims",
    claims: [{ origin: originOf("self"), incarnation: before.incarnation, state: "suspect" }],
  });
  single.time.advance(50);
  const [refutation] = peer.take("records");
  expect(refutation!.records[0]).toMatchObject({ origin: originOf("self"), incarnation: before.incarnation + 1 });
  peer.say({ kind: "claims", claims: [{ origin: originOf("self"), incarnation: before.incarnation, state: "down" }] });
  single.time.advance(50);
  expect(peer.take("records")).toEqual([]);
});

// Symptom: after one odd frame a router lost all its links, and every new one too, until it was started again.
// Mechanism: it answered a claim under the highest incarnation that can be written with one above it, in a record that
// nobody can read.
test.each([Number.MAX_SAFE_INTEGER, 2 ** 48 + 1])(
  "a claim or a record under the absurd incarnation %d is refused, and what it says of itself stays readable",
  (incarnation) => {
    const single = createSingle();
    const peer = single.peer("p");
    single.time.advance(100);
    const claim = { origin: originOf("self"), incarnation, state: "down" } as const;
    const record = { ...recordOf("self", 1, []), incarnation };
    for (const message of [
      { kind: "claims", claims: [claim] },
      { kind: "records", records: [record] },
    ] as const) {
      expect(() => peer.say(message)).toThrow(EspalierError);
    }
    single.membership.setDraining(true);
    expect(() => single.time.advance(100)).not.toThrow();
    const own = peer
      .take("records")
      .at(-1)!
      .records.find(({ origin }) => origin.router === "self")!;
    expect(own.isDraining).toBe(true);
    expect(own.incarnation).toBeLessThan(100);
  },
);

// Symptom: one claim that somebody was down, under the highest incarnation that may be written, made the links of its victim
// break and form for ever, also when who had said it was gone. Mechanism: the victim refuted it under the next incarnation,
// which all others refuse to read; and others kept and passed on what no record of the victim could outweigh.
test.each([2 ** 48, 70_000])(
  "a claim far ahead of what its victim has said (%d) is neither passed on nor answered",
  (incarnation) => {
    const single = createSingle();
    const [p, q, r] = ["p", "q", "r"].map((name) => single.peer(name)) as [Peer, Peer, Peer];
    r.say({ kind: "records", records: [recordOf("r", 5, ["self"])] });
    single.time.advance(100);
    for (const peer of [p, q, r]) peer.sent.splice(0);
    for (const victim of ["r", "self"]) {
      p.say({ kind: "claims", claims: [{ origin: originOf(victim), incarnation, state: "down" }] });
    }
    p.say({ kind: "records", records: [recordOf("self", incarnation, [])] });
    single.time.advance(100);
    expect([...q.take("claims"), ...r.take("claims")]).toEqual([]);
    single.membership.setDraining(true);
    single.time.advance(100);
    const own = q
      .take("records")
      .at(-1)!
      .records.find(({ origin }) => origin.router === "self")!;
    expect(own).toMatchObject({ isDraining: true, incarnation: expect.any(Number) });
    expect(own.incarnation).toBeLessThan(100);
    // A true claim is heard as before.
    p.say({ kind: "claims", claims: [{ origin: originOf("r"), incarnation: 6, state: "suspect" }] });
    expect(q.take("claims").map(({ claims }) => claims[0]!.origin.router)).toEqual(["r"]);
    p.say({ kind: "claims", claims: [{ origin: originOf("self"), incarnation: own.incarnation, state: "down" }] });
    single.time.advance(100);
    expect(q.take("records").at(-1)!.records[0]!.incarnation).toBeGreaterThan(own.incarnation);
  },
);

// Symptom: after a record of others that a router had left, it counted as gone for good although it was linked and said
// otherwise, and its feeds got a second reader. Mechanism: what others passed on in its name counted like its own word, and its
// own next words came under lower incarnations.
test("what others say in the name of a router that is linked does not count, whatever it is", () => {
  const single = createSingle();
  const [p, r] = ["p", "r"].map((name) => single.peer(name)) as [Peer, Peer];
  r.say({ kind: "records", records: [recordOf("r", 5, ["self"])] });
  const gone = { hasLeft: true, isDraining: true };
  p.say({ kind: "records", records: [recordOf("r", 900, [], gone)] });
  p.say({ kind: "records", records: [{ ...recordOf("r", 1, [], gone), origin: originOf("r", 2 ** 48) }] });
  expect([single.state("r"), r.closed]).toEqual(["alive", []]);
  r.say({ kind: "records", records: [recordOf("r", 6, ["self"], { isDraining: true })] });
  expect(single.membership.member(asRouterId("r"))).toMatchObject({ state: "alive", isDraining: true, isLinked: true });
  r.say({ kind: "records", records: [recordOf("r", 7, [], { hasLeft: true })] });
  expect(single.state("r")).toBe("left");
});

test("what others said in the name of a router before it was linked is over with its own first word", () => {
  const single = createSingle();
  const p = single.peer("p");
  p.say({ kind: "records", records: [recordOf("p", 1, ["self", "r"]), recordOf("r", 2 ** 40, ["p"])] });
  p.say({ kind: "records", records: [recordOf("r", 2 ** 40 + 1, [], { hasLeft: true })] });
  expect(single.state("r")).toBe("left");
  const r = single.peer("r");
  r.say({ kind: "records", records: [recordOf("r", 3, ["self"])] });
  expect(single.state("r")).toBe("alive");
  r.say({ kind: "records", records: [recordOf("r", 2, [], { hasLeft: true })] });
  expect(single.state("r")).toBe("alive");
});

test("a record that others pass on is within reach of what is known, or it is not taken", () => {
  const single = createSingle();
  const p = single.peer("p");
  p.say({ kind: "records", records: [recordOf("p", 1, ["self", "r"]), recordOf("r", 7, ["p"])] });
  for (const ahead of [2 ** 48 - 7, 65_537]) {
    p.say({ kind: "records", records: [recordOf("r", 7 + ahead, ["p"], { isDraining: true })] });
    expect(single.membership.member(asRouterId("r"))).toMatchObject({ state: "alive", isDraining: false });
  }
  p.say({ kind: "records", records: [recordOf("r", 7 + 65_536, ["p"], { isDraining: true })] });
  expect(single.membership.member(asRouterId("r"))).toMatchObject({ state: "alive", isDraining: true });
});

test("claims of others are passed on once, to all but whom they came from", () => {
  const single = createSingle();
  const [p, q, r] = ["p", "q", "r"].map((name) => single.peer(name)) as [Peer, Peer, Peer];
  p.say({ kind: "records", records: [recordOf("r", 5, ["self"])] });
  for (const peer of [p, q, r]) peer.sent.splice(0);
  const claim = { origin: originOf("r"), incarnation: 5, state: "suspect" } as const;
  p.say({ kind: "claims", claims: [claim] });
  q.say({ kind: "claims", claims: [claim] });
  expect(p.take("claims")).toEqual([]);
  expect(q.take("claims").map(({ claims }) => claims)).toEqual([[claim]]);
  expect(r.take("claims").map(({ claims }) => claims)).toEqual([[claim]]);
  expect(single.state("r")).toBe("alive");
  p.say({ kind: "claims", claims: [{ ...claim, incarnation: 4, state: "down" }] });
  expect(r.take("claims")).toEqual([]);
});

// Symptom: one router that says so has others take a router for dead as if they had found it dead themselves. Mechanism: a single
// claim counted, and went on under every name that passed it on.
test("the word of one peer makes nobody dead sooner, that of each further one does, each for itself", () => {
  const suspicionMs = (sayers: number): number => {
    const single = createSingle();
    const names = ["p0", "p1", "p2", "q"];
    const peers = names.map((name) => single.peer(name));
    const q = peers.pop()!;
    const linksOf = (name: string, without = "") =>
      ["self", ...names].filter((other) => other !== name && other !== without);
    const tell = (peer: Peer, at: number, without?: string) =>
      peer.say({ kind: "records", records: [recordOf(names[at]!, without ? 2 : 1, linksOf(names[at]!, without))] });
    for (const [at, peer] of [...peers, q].entries()) tell(peer, at);
    single.time.advance(100);
    const claim = { origin: originOf("q"), incarnation: 1, state: "down" } as const;
    const say = () => {
      for (const peer of peers.slice(0, sayers)) peer.say({ kind: "claims", claims: [claim, claim, claim] });
    };
    say();
    single.time.advance(2_000);
    // What others have found is theirs to say. The own link of a router outweighs them all.
    for (const peer of peers) expect(peer.take("claims")).toEqual([]);
    expect(single.state("q")).toBe("alive");
    single.membership.linkDown(q.link, "reset");
    for (const [at, peer] of peers.entries()) tell(peer, at, "q");
    expect(single.state("q")).toBe("suspect");
    for (const peer of peers) peer.sent.splice(0);
    say();
    for (const peer of peers) expect(peer.take("claims")).toEqual([]);
    const fromMs = single.time.clock.nowMs();
    while (single.state("q") === "suspect") single.time.advance(50);
    for (const peer of peers) expect(peer.take("claims")).toEqual([{ kind: "claims", claims: [claim] }]);
    peers[0]!.say({ kind: "records", records: [recordOf("q", 2, [])] });
    expect(single.state("q")).toBe("suspect");
    return single.time.clock.nowMs() - fromMs;
  };
  const [nobody, one, two, three] = [0, 1, 2, 3].map(suspicionMs);
  expect(nobody).toBeGreaterThanOrEqual(1_700);
  expect(one).toBe(nobody);
  expect(Math.floor(two! / 100)).toBe(8);
  expect(three).toBeLessThan(400);
});

test("others are asked about a silent peer, and one that hears it keeps it alive", () => {
  for (const isVouched of [true, false]) {
    const single = createSingle();
    const peers = ["a", "b", "c", "d"].map((name) => single.peer(name));
    const silent = single.peer("s");
    silent.answersPings = false;
    single.time.advance(1_100);
    const asked = peers.filter((peer) => peer.take("probe").some(({ origin }) => origin.router === "s"));
    expect(asked).toHaveLength(3);
    expect(silent.take("probe")).toEqual([]);
    if (isVouched) asked[0]!.say({ kind: "heard", origin: originOf("s") });
    single.time.advance(1_000);
    expect(silent.closed).toEqual(["silent"]);
    expect(single.membership.member(asRouterId("s"))).toMatchObject({ isLinked: false });
    expect(single.state("s")).toBe(isVouched ? "alive" : "suspect");
    single.time.advance(1_500);
    expect(single.state("s")).toBe(isVouched ? "suspect" : "down");
  }
});

test("a question about a peer is answered when a ping sent after it is", () => {
  const single = createSingle();
  const asker = single.peer("asker");
  const subject = single.peer("subject");
  subject.answersPings = false;
  single.time.advance(20);
  const earlier = subject.take("ping").at(-1)!;
  asker.sent.splice(0);
  asker.say({ kind: "probe", origin: originOf("subject", 2) });
  expect(subject.take("ping")).toEqual([]);
  asker.say({ kind: "probe", origin: originOf("subject") });
  const [ping] = subject.take("ping");
  subject.say({ kind: "ack", number: earlier.number });
  expect(asker.take("heard")).toEqual([]);
  single.time.advance(7);
  subject.say({ kind: "ack", number: ping!.number });
  subject.say({ kind: "ack", number: ping!.number });
  expect(asker.take("heard")).toEqual([{ kind: "heard", origin: originOf("subject") }]);
  expect(subject.link.roundTripMs).toBe(7);
});

test("more routers than may wait for an answer about one peer are not answered", () => {
  const single = createSingle();
  const subject = single.peer("subject");
  subject.answersPings = false;
  const askers = Array.from({ length: 17 }, (_, index) => single.peer(`asker-${index}`));
  for (const asker of askers) asker.say({ kind: "probe", origin: originOf("subject") });
  const last = subject.take("ping").at(-1)!;
  subject.say({ kind: "ack", number: last.number });
  expect(askers.filter((asker) => asker.take("heard").length === 1)).toHaveLength(16);
});

test("a router whose own event loop lags gives others more time", () => {
  const single = createSingle();
  const peer = single.peer("p");
  peer.answersPings = false;
  single.lagMs = 1_100;
  single.time.advance(4_000);
  expect(peer.closed).toEqual([]);
  single.time.advance(2_000);
  expect(peer.closed).toEqual(["silent"]);
});

test("any frame of any channel shows that a peer lives", () => {
  const single = createSingle();
  const peer = single.peer("p");
  peer.answersPings = false;
  single.time.scheduler.every(1_000, () => single.membership.heard(peer.link));
  single.time.advance(10_000);
  expect(peer.closed).toEqual([]);
  expect(peer.take("ping").length).toBeGreaterThanOrEqual(9);
});

test("a stale record alone makes no member; one that a path leads to does", () => {
  const single = createSingle();
  const peer = single.peer("p");
  const other = single.peer("q");
  const { length } = single.changes;
  peer.say({ kind: "records", records: [recordOf("x", 9, ["y"]), recordOf("y", 9, ["x"])] });
  single.time.advance(20);
  expect(single.membership.members()).toHaveLength(2);
  expect(single.changes).toHaveLength(length);
  other.take("records");
  expect(single.dialed).not.toContain("x:1");
  peer.say({ kind: "records", records: [recordOf("p", 1, ["self", "x"])] });
  expect([single.state("x"), single.state("y")]).toEqual(["alive", "alive"]);
  expect(single.dialed).toContain("x:1");
  single.time.advance(50);
  const passedOn = other.take("records").flatMap(({ records }) => records.map(({ origin }) => origin.router));
  expect(passedOn).toEqual(expect.arrayContaining(["x", "y"]));
});

test("a link that ends is told of, whoever else hears the router", () => {
  const single = createSingle();
  const [p, q] = ["p", "q"].map((name) => single.peer(name)) as [Peer, Peer];
  q.say({ kind: "records", records: [recordOf("q", 1, ["self", "p"]), recordOf("p", 1, ["q", "self"])] });
  single.time.advance(100);
  single.changes.splice(0);
  single.membership.linkDown(p.link, "reset");
  single.time.advance(100);
  expect(single.changes.map(({ member }) => member)).toMatchObject([
    { origin: originOf("p"), state: "alive", isLinked: false },
  ]);
});

test("members past the bound are counted as refused", () => {
  const meter = createCountingMeter();
  const single = createSingle({ maxMembers: 2 }, meter);
  const peer = single.peer("p");
  const refused = () => meter.value("espalier_mesh_members_refused_total");
  peer.say({ kind: "records", records: [recordOf("p", 1, ["self", "x", "y"]), recordOf("x", 1, ["p"])] });
  expect(refused()).toBe(0);
  peer.say({ kind: "records", records: [recordOf("y", 1, ["p"])] });
  expect([refused(), single.state("y")]).toEqual([1, undefined]);
});

test("who leaves is dialed no more, even after it was given up once and came back", () => {
  const single = createSingle();
  const p = single.peer("p");
  p.say({ kind: "records", records: [recordOf("p", 1, ["self", "y"]), recordOf("y", 1, ["p"])] });
  expect(single.dialed).toContain("y:1");
  p.say({ kind: "records", records: [recordOf("y", 2, [], { hasLeft: true })] });
  single.time.advance(100);
  expect(single.forgotten).toEqual(["y:1"]);
  const x = single.peer("x");
  single.membership.linkDown(x.link, "reset");
  single.membership.dialFailed("x:1", { kind: "refused" });
  single.time.advance(8_000);
  expect(single.state("x")).toBeUndefined();
  const back = single.peer("x", 2);
  const record = { ...recordOf("x", 1, ["self"]), origin: originOf("x", 2) };
  back.say({ kind: "records", records: [record] });
  single.time.advance(100);
  expect(single.forgotten).toEqual(["y:1"]);
  back.say({ kind: "records", records: [{ ...record, incarnation: 2, hasLeft: true }] });
  single.time.advance(100);
  expect(single.forgotten).toEqual(["y:1", "x:1"]);
});

test("a refused dial is no sign of death while others hear the router", () => {
  const single = createSingle();
  const [p, q] = ["p", "q"].map((name) => single.peer(name)) as [Peer, Peer];
  p.say({ kind: "records", records: [recordOf("p", 1, ["self", "q"]), recordOf("q", 1, ["self", "p"])] });
  single.membership.linkDown(q.link, "reset");
  expect(single.dialed.filter((address) => address === "q:1")).toHaveLength(2);
  single.membership.dialFailed("q:1", { kind: "refused" });
  single.time.advance(5_000);
  expect(single.state("q")).toBe("alive");
  p.say({ kind: "records", records: [recordOf("p", 2, ["self"])] });
  single.time.advance(1_000);
  expect(single.state("q")).toBe("suspect");
  single.membership.dialFailed("q:1", { kind: "refused" });
  expect(single.state("q")).toBe("down");
});

test("a link of an earlier epoch is refused, that of a later one replaces", () => {
  const single = createSingle();
  const second = single.peer("p", 2);
  const first = single.peer("p", 1);
  expect(first.closed).toEqual(["replaced"]);
  expect(single.membership.members()).toMatchObject([{ origin: originOf("p", 2), isLinked: true }]);
  const third = single.peer("p", 3);
  expect(second.closed).toEqual(["replaced"]);
  expect(single.membership.members()).toMatchObject([{ origin: originOf("p", 3), isLinked: true }]);
  single.membership.linkDown(second.link, "replaced");
  expect(single.membership.members()).toMatchObject([{ isLinked: true }]);
  expect(third.closed).toEqual([]);
});

test("a new epoch of this router is told to its peers", () => {
  const single = createSingle();
  const peer = single.peer("p");
  single.time.advance(50);
  peer.sent.splice(0);
  single.epoch = 7;
  single.time.advance(200);
  expect(peer.take("records")[0]!.records[0]!.origin).toEqual(originOf("self", 7));
});

test("peers whose digests differ get the whole table, at growing intervals", () => {
  const single = createSingle();
  const peer = single.peer("p");
  single.peer("q");
  single.time.advance(1_100);
  peer.sent.splice(0);
  let tables = 0;
  for (let second = 0; second < 40; second++) {
    peer.say({ kind: "ping", number: second, digest: 0 });
    single.time.advance(1_000);
    tables += peer.take("records").length;
  }
  expect(tables).toBeGreaterThanOrEqual(4);
  expect(tables).toBeLessThanOrEqual(7);
});

test("a peer that has just come gets all that is known, its own record apart", () => {
  const single = createSingle();
  single.peer("p").say({ kind: "records", records: [recordOf("p", 3, ["self", "x"]), recordOf("x", 2, ["p"])] });
  single.time.advance(100);
  const late = single.peer("late");
  const [whole] = late.take("records");
  expect(whole?.records.map(({ origin }) => origin.router).sort()).toEqual(["p", "self", "x"]);
});

test("a peer that has just got the whole table does not get it again within a second, whatever its digest", () => {
  const single = createSingle();
  const peer = single.peer("p");
  single.time.advance(100);
  peer.sent.splice(0);
  peer.say({ kind: "ping", number: 1, digest: 0 });
  expect(peer.take("records")).toEqual([]);
  single.time.advance(1_000);
  peer.say({ kind: "ping", number: 2, digest: 0 });
  expect(peer.take("records")).toHaveLength(1);
});

test("what others know of this router is answered only when it is ahead of what this router has said", () => {
  const single = createSingle();
  const peer = single.peer("p");
  single.time.advance(100);
  const said = peer.take("records").flatMap(({ records }) => records);
  const { incarnation } = said.findLast(({ origin }) => origin.router === "self")!;
  const tell = (ahead: number, epoch = 1): number[] => {
    const record = { ...recordOf("self", incarnation + ahead, []), origin: originOf("self", epoch) };
    peer.say({ kind: "records", records: [record] });
    single.time.advance(50);
    return peer.take("records").flatMap(({ records }) => records.map((one) => one.incarnation));
  };
  expect(tell(0)).toEqual([]);
  expect(tell(5, 0), "of an earlier epoch").toEqual([]);
  expect(tell(5)).toEqual([incarnation + 6]);
});

test("members are counted by state", () => {
  const meter = createCountingMeter();
  const single = createSingle({}, meter);
  const counts = () => ["alive", "suspect", "down", "left"].map((state) => meter.value("espalier_mesh_members", state));
  const peer = single.peer("p");
  single.peer("q");
  single.time.advance(100);
  expect(counts()).toEqual([2, 0, 0, 0]);
  peer.say({ kind: "records", records: [recordOf("p", 3, ["self"], { hasLeft: true })] });
  expect(counts()).toEqual([1, 0, 0, 1]);
});

test("its own address is not dialed again", () => {
  const single = createSingle();
  const peer = single.peer("p");
  peer.say({
    kind: "records",
    records: [recordOf("p", 1, ["self", "x"]), recordOf("x", 1, ["p"], { address: "me:1" })],
  });
  expect(single.dialed).toContain("me:1");
  single.membership.dialFailed("me:1", { kind: "rejected", reason: "self", detail: "" });
  peer.say({ kind: "records", records: [recordOf("x", 2, ["p"], { address: "self:1" })] });
  peer.say({ kind: "records", records: [recordOf("x", 3, ["p"], { address: "me:1" })] });
  expect(single.forgotten).toEqual(["me:1"]);
  expect(single.dialed).not.toContain("self:1");
});

test("addresses of forgotten routers are dialed on, up to a bound and for a time", () => {
  const single = createSingle({ maxRejoinAddresses: 2, rejoinMs: 30_000 });
  for (const name of ["x", "y", "z"]) {
    const peer = single.peer(name);
    single.membership.linkDown(peer.link, "reset");
    single.membership.dialFailed(`${name}:1`, { kind: "refused" });
    single.time.advance(3_000);
  }
  expect(single.membership.members()).toEqual([]);
  expect(single.forgotten).toEqual(["x:1"]);
  single.time.advance(40_000);
  expect(single.forgotten.sort()).toEqual(["x:1", "y:1", "z:1"]);
});

test("arbitrary bytes are refused and leave everything as it was", () => {
  const single = createSingle();
  const peer = single.peer("p");
  const other = single.peer("other");
  const random = createSeededRandom(5);
  const samples = [
    encodeMembership({ kind: "records", records: [recordOf("p", 3, ["self"]), recordOf("z", 3, ["self"])] })[0]!,
    encodeMembership({ kind: "claims", claims: [{ origin: originOf("other"), incarnation: 1, state: "down" }] })[0]!,
  ];
  let refused = 0;
  for (let round = 0; round < 2_000; round++) {
    const bytes = samples[round % 2]!.slice(0, random.integer(samples[round % 2]!.length));
    if (bytes.length > 1) bytes[random.integer(bytes.length)] = 0xff;
    try {
      single.membership.receive(peer.link, bytes);
    } catch (error) {
      expect(error).toBeInstanceOf(EspalierError);
      refused += 1;
    }
  }
  expect(refused).toBeGreaterThan(1_900);
  expect(single.state("p")).toBe("alive");
  expect(other.closed).toEqual([]);
});

test("news crosses a chain of links without waiting for a comparison", () => {
  const network = createMesh(6, { seed: 12, maxDelayMs: 10 });
  const names = namesOf(6);
  for (const [index, one] of names.entries()) {
    for (const two of names.slice(index + 2)) {
      network.cut(one, two);
      network.cut(two, one);
    }
  }
  network.run(8_000);
  expect([...network.node("a").membership.linksOf("f" as never)]).toEqual(["e"]);
  network.node("a").membership.setDraining(true);
  network.run(5 * 10 + 6 * 11);
  expect(network.node("f").membership.member("a" as never)).toMatchObject({ state: "alive", isDraining: true });
});
