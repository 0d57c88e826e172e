import { runCommand } from "@espalier/bench";
import { expect, test } from "vitest";

/** Runs parts at their small sizes. */
async function run(parts: string) {
  const output: string[] = [];
  const notes: string[] = [];
  const code = await runCommand(["limits", "--part", parts, "--quick", "--json"], {
    out: (text) => void output.push(text),
    notes: (text) => void notes.push(text),
  });
  expect([code, notes.filter((line) => line.startsWith("error"))]).toEqual([0, []]);
  const report = JSON.parse(output.join("")) as {
    metrics: Record<string, number>;
    rows: { part: string; beyond: string }[];
  };
  return { ...report, beyond: Object.fromEntries(report.rows.map(({ part, beyond }) => [part, beyond])) };
}

test("a part goes to its number, measures the router there, and says what one more does", {
  timeout: 120_000,
}, async () => {
  const { metrics, beyond } = await run("feeds,models,clients");
  expect(metrics).toMatchObject({ feeds_reached: 128, models_reached: 20, clients_reached: 50 });
  for (const figure of ["ready_ms", "rss_mb", "descriptors"]) expect(metrics[`feeds_${figure}`]).toBeGreaterThan(0);
  expect(metrics.feeds_descriptors).toBeGreaterThan(4 * 128);
  expect(beyond).toMatchObject({
    feeds: "its feed is partial",
    models: "of an engine that lists 257 models, 256 are served",
    clients: expect.stringMatching(/^one more gets 503 .*too_many_connections.*; when they are gone, answers again$/s),
  });
});

test("routers that are more than a mesh is made for are started too", { timeout: 120_000 }, async () => {
  const { metrics, beyond } = await run("routers");
  expect(metrics).toMatchObject({ routers_reached: 3 });
  expect(beyond.routers).toBe("one more is linked with all 3; a second one with 4 of 4");
});

test("a part that does not exist is refused", async () => {
  const notes: string[] = [];
  const code = await runCommand(["limits", "--part", "none"], {
    out: () => {},
    notes: (text) => void notes.push(text),
  });
  expect([code, notes.join("")]).toEqual([2, expect.stringContaining('--part: there is no "none"')]);
});
