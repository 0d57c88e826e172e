import { asRouterId } from "@espalier/core";
import { expect, test } from "vitest";
import type { VersionRange } from "../../src/wire/link-frames.ts";
import { LinksRig, type TestRouter } from "./links-rig.ts";

/** Three releases in a row: each shares a version with the one before it. */
const releases: readonly VersionRange[] = [
  { min: 1, max: 1 },
  { min: 1, max: 2 },
  { min: 2, max: 3 },
];
const names = ["a", "b", "c"];

/** Routers by name, each of some release, that all dial each other. */
class Fleet {
  readonly rig = new LinksRig();
  readonly routers = new Map<string, TestRouter>();
  #epoch = 0;

  /** Starts a router of a release, in the place of an earlier run of the same name. */
  async start(name: string, release: number): Promise<void> {
    await this.routers.get(name)?.links.stop();
    this.#epoch++;
    const router = await this.rig.start(name, {
      versions: releases[release]!,
      identity: { origin: { router: asRouterId(name), epoch: this.#epoch } },
    });
    this.routers.set(name, router);
    for (const other of names) if (other !== name) router.links.dial(`${other}:1`);
    for (const other of this.routers.values()) if (other !== router) other.links.dial(router.address);
    this.rig.time.advance(3_000);
  }

  /** The version of each link, as both ends see it: `a-b 1`. Fails where the ends differ. */
  versions(): readonly string[] {
    const links = [...this.routers.values()].flatMap((one) =>
      one.links
        .links()
        .map(({ peer }) => ({ one: one.name, other: String(peer.origin.router), version: peer.version })),
    );
    const forward = links
      .filter(({ one, other }) => one < other)
      .map(({ one, other, version }) => `${one}-${other} ${version}`);
    const backward = links
      .filter(({ one, other }) => one > other)
      .map(({ one, other, version }) => `${other}-${one} ${version}`);
    expect(forward.sort()).toEqual(backward.sort());
    return forward;
  }
}

test("routers that are upgraded one after the other, release by release, are linked all the time, by the highest version that both ends speak", async () => {
  const fleet = new Fleet();
  for (const name of names) await fleet.start(name, 0);
  expect(fleet.versions()).toEqual(["a-b 1", "a-c 1", "b-c 1"]);
  const seen: (readonly string[])[] = [];
  for (const release of [1, 2])
    for (const name of names) {
      await fleet.start(name, release);
      seen.push(fleet.versions());
    }
  expect(seen).toEqual([
    ["a-b 1", "a-c 1", "b-c 1"],
    ["a-b 2", "a-c 1", "b-c 1"],
    ["a-b 2", "a-c 2", "b-c 2"],
    ["a-b 2", "a-c 2", "b-c 2"],
    ["a-b 3", "a-c 2", "b-c 2"],
    ["a-b 3", "a-c 3", "b-c 3"],
  ]);
  for (const router of fleet.routers.values()) expect(router.warnings()).toEqual([]);
});

test("a router that skips a release is refused by those it has no version in common with, which stay linked", async () => {
  const fleet = new Fleet();
  for (const name of names) await fleet.start(name, 0);
  await fleet.start("c", 2);
  expect(fleet.versions()).toEqual(["a-b 1"]);
  expect(fleet.routers.get("c")!.events).toContain("failed a:1 protocol-version");
  await fleet.start("c", 1);
  expect(fleet.versions()).toEqual(["a-b 1", "a-c 1", "b-c 1"]);
});
