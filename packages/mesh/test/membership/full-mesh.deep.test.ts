import { expect, test } from "vitest";
import { createNetwork } from "./network.ts";

test("64 routers have a link to each, see all others, and notice a death within 1 s", () => {
  const network = createNetwork({ seed: 4 });
  const names = Array.from({ length: 64 }, (_, index) => `r${index}`);
  for (const name of names) network.add(name, { seeds: name === "r0" ? [] : ["r0"] });
  network.run(5_000);
  for (const node of network.nodes()) {
    expect(node.seen("alive")).toHaveLength(63);
    expect(node.membership.linksOf(node.router).size).toBe(63);
  }
  const startMs = network.time.clock.nowMs();
  network.kill("r7");
  network.run(1_000);
  for (const node of network.nodes()) {
    expect(node.seen("down")).toEqual(["r7"]);
    const others = node.changes.filter(({ atMs, member }) => atMs >= startMs && member.origin.router !== "r7");
    expect(others.every(({ member }) => member.state === "alive")).toBe(true);
  }
}, 60_000);
