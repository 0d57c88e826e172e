import { expect, test } from "vitest";
import { describeMesh, type MeshStatus, registerStatus } from "../src/commands/status.ts";
import { runCommand } from "./run-command.ts";
import { temporaryServer } from "./temporary.ts";

const member = {
  router: "router-2",
  epoch: 1_700_000_000_002,
  state: "alive",
  isDraining: false,
  region: null as string | null,
  address: "10.0.0.2:7946",
  isLinked: true,
  roundTripMs: 0.456,
  lagMs: 12.34,
  sentBytesPerS: 1_234.6,
  receivedBytesPerS: 99.4,
  bufferedBytes: 0,
  version: "0.1.0",
  settings: "0a1b2c3d",
  differs: [] as string[],
};

const mesh: MeshStatus = {
  backend: "peers",
  router: "router-1",
  epoch: 1_700_000_000_001,
  region: null,
  address: "10.0.0.1:7946",
  members: [member],
  lost: [],
  droppedEstimates: [],
  droppedEntries: [],
  refused: [],
  feeds: { owned: 3, backup: 2, unowned: 1 },
  facts: { targets: 6, blocks: 12_345, settled: 5, digest: "00112233445566ff" },
  journals: { count: 4, bytes: 98_765 },
};

const release = { version: "0.1.0", settings: "0a1b2c3d" };
const status = {
  ...release,
  ready: true,
  reasons: [],
  draining: false,
  inFlight: 0,
  totals: { requests: 0, answered: 0, refused: 0, failed: 0, cut: 0, cancelled: 0 },
  goodput: [],
  engines: 1,
  usableEngines: 1,
  troubledEngines: [],
  models: ["m"],
};

async function statusWith(given: MeshStatus | null, ...more: readonly string[]) {
  const admin = await temporaryServer(({ response }) => response.end(JSON.stringify({ ...status, mesh: given })));
  return runCommand(registerStatus, "status", "--admin", admin, ...more);
}

const rowOf = (change: Partial<typeof member>): string[] => {
  const line =
    describeMesh({ ...mesh, members: [{ ...member, ...change }] })
      .trimEnd()
      .split("\n")
      .at(-1) ?? "";
  return line.split(/ {2,}/).map((cell) => cell.trim());
};

test("a router's place among the others: itself, its feeds, its facts, its journals", () => {
  expect(describeMesh(mesh).split("\n").slice(0, 5)).toEqual([
    "mesh      router-1, epoch 1700000000001, by peers at 10.0.0.1:7946",
    "feeds     3 read here, 2 followed as backup, 1 unowned",
    "facts     12345 blocks of 6 targets, 5 settled, digest 00112233445566ff",
    "journals  4, 98765 B",
    "",
  ]);
});

test("one of a kind is no plural", () => {
  const facts = { ...mesh.facts, blocks: 1, targets: 1 };
  expect(describeMesh({ ...mesh, facts }).split("\n")[2]).toMatch(/^facts {5}1 block of 1 target, /);
});

test("estimates that it could not share are counted by kind", () => {
  const lines = describeMesh({ ...mesh, droppedEstimates: [{ kind: "times", count: 3 }] }).split("\n");
  expect(lines[4]).toBe("estimates too many of kind times: 3 dropped");
});

test("entries of the registry that made room for later ones are counted by kind", () => {
  const lines = describeMesh({ ...mesh, droppedEntries: [{ kind: "drain", count: 3 }] }).split("\n");
  expect(lines[4]).toBe("registry  too many of kind drain: 3 dropped");
});

test("by way of Redis it has no address", () => {
  const text = describeMesh({ ...mesh, backend: "redis", address: null });
  expect(text.split("\n")[0]).toBe("mesh      router-1, epoch 1700000000001, by redis");
});

test("regions stand where any router says one", () => {
  const text = describeMesh({ ...mesh, region: "us", members: [member, { ...member, region: "eu" }] });
  expect(text.split("\n")[0]).toBe("mesh      router-1, epoch 1700000000001, by peers at 10.0.0.1:7946, in us");
  const [heads, ...rows] = text.trimEnd().split("\n").slice(5);
  expect(heads?.split(/ {2,}/).slice(0, 4)).toEqual(["router", "state", "region", "address"]);
  expect(rows.map((row) => row.split(/ {2,}/)[2]?.trim())).toEqual(["-", "eu"]);
});

test("a line for each other router, its columns named", () => {
  const lines = describeMesh({ ...mesh, members: [member, { ...member, router: "router-3" }] })
    .trimEnd()
    .split("\n");
  expect(lines[5]?.split(/ {2,}/)).toEqual([
    ...["router", "state", "address", "version", "settings", "linked", "round trip (ms)", "lag (ms)"],
    ...["sent (B/s)", "received (B/s)", "waiting (B)"],
  ]);
  expect(lines.slice(6).map((line) => line.split(" ")[0])).toEqual(["router-2", "router-3"]);
});

test.each<[string, Partial<typeof member>, string[]]>([
  ["linked", {}, ["router-2", "alive", "10.0.0.2:7946", "0.1.0", "0a1b2c3d", "yes", "0.46", "12.3", "1235", "99", "0"]],
  [
    "that drains",
    { isDraining: true },
    ["router-2", "alive, draining", "10.0.0.2:7946", "0.1.0", "0a1b2c3d", "yes", "0.46", "12.3", "1235", "99", "0"],
  ],
  [
    "that is down, of which little is known",
    { state: "down", isLinked: false, address: null as never, roundTripMs: null as never, lagMs: null as never },
    ["router-2", "down", "-", "0.1.0", "0a1b2c3d", "no", "-", "-", "1235", "99", "0"],
  ],
  [
    "that does not keep up",
    { bufferedBytes: 4_096, lagMs: 0 },
    ["router-2", "alive", "10.0.0.2:7946", "0.1.0", "0a1b2c3d", "yes", "0.46", "0.0", "1235", "99", "4096"],
  ],
])("a router %s", (_, change, cells) => {
  expect(rowOf(change)).toEqual(cells);
});

const noRequests = "requests  0 answered, 0 refused, 0 failed, 0 cut, 0 cancelled by their clients";

test("no other router: a sentence", () => {
  expect(
    describeMesh({ ...mesh, members: [] })
      .split("\n")
      .at(-1),
  ).toBe("no other router");
});

test("`espalier status` shows it below the router's own state", async () => {
  const { stdout, exitCode } = await statusWith(mesh);
  expect(stdout.split("\n").slice(0, 8)).toEqual([
    ...[
      "ready",
      "version   0.1.0, settings 0a1b2c3d",
      "engines   1 of 1 usable",
      "models    m",
      "in flight 0",
      noRequests,
      "",
    ],
    "mesh      router-1, epoch 1700000000001, by peers at 10.0.0.1:7946",
  ]);
  expect(stdout).toContain("router-2");
  expect(exitCode).toBeUndefined();
});

test("a router that shares nothing has no such part", async () => {
  const { stdout } = await statusWith(null);
  expect(stdout).toBe(
    `ready\nversion   0.1.0, settings 0a1b2c3d\nengines   1 of 1 usable\nmodels    m\nin flight 0\n${noRequests}\n`,
  );
});

test("as JSON it is all that the router told", async () => {
  const { stdout } = await statusWith(mesh, "--json");
  expect(JSON.parse(stdout)).toEqual({ ...status, mesh });
});

test("lost and refused routers, with since when and why", () => {
  const [sinceMs, lastMs] = [Date.UTC(2026, 1, 3, 4, 5, 6), Date.UTC(2026, 1, 3, 4, 6, 7)];
  const refused = {
    address: "10.0.0.9",
    by: "self",
    claimed: "router-9 at 10.0.0.9:7946",
    reason: "secret",
    detail: "the secrets differ",
    count: 3,
    lastMs,
  } as const;
  const text = describeMesh({
    ...{ ...mesh, lost: [{ router: "router-3", address: "10.0.0.3:7946", sinceMs }] },
    refused: [refused, { ...refused, by: "peer", claimed: null, address: "10.0.0.8:7946" }],
  });
  expect(text.split("\n").slice(4, 7)).toEqual([
    "lost      router-3 at 10.0.0.3:7946, since 2026-02-03T04:05:06Z",
    "refused   10.0.0.9, says it is router-9 at 10.0.0.9:7946: secret (the secrets differ), 3 times, last at 2026-02-03T04:06:07Z",
    "refused   by 10.0.0.8:7946: secret (the secrets differ), 3 times, last at 2026-02-03T04:06:07Z",
  ]);
});

test("a router that differs is warned of while it lives", async () => {
  const differing = { ...member, version: "0.2.0", differs: ["version", "policy", "prefix"] };
  const { stdout } = await statusWith({ ...mesh, members: [differing, { ...differing, router: "r3", state: "down" }] });
  expect(stdout.split("\n").filter((line) => line.startsWith("warning"))).toEqual([
    "warning   router-2 runs 0.2.0, this router 0.1.0",
    "warning   router-2 has other settings: policy, prefix",
  ]);
});
