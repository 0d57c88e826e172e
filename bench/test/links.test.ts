import { expect, test } from "vitest";
import { linksSuite } from "../src/suites/links.ts";
import { UsageError } from "../src/support/usage-error.ts";

test("gauges between routers are measured over real sockets, for each size of the mesh", async () => {
  const lines: string[] = [];
  const { report, table } = await linksSuite.run(["--quick", "--frames", "200"], (line) => lines.push(line));
  expect(lines).toEqual(["2 routers measured", "4 routers measured"]);
  for (const routers of [2, 4]) {
    expect(report.metrics[`idle_bytes_per_s_${routers}`]).toBeGreaterThan(0);
    const idle = report.metrics[`idle_load_frames_per_s_${routers}`]!;
    expect(report.metrics[`loaded_load_frames_per_s_${routers}`]).toBeGreaterThan(idle);
  }
  expect(table.split("\n")[2]).toMatch(/^4 /);
}, 30_000);

test.each([
  ["--routers", "1"],
  ["--routers", "66"],
  ["--routers", "8,x"],
  ["--frames", "0"],
  ["--seconds", "0.5"],
])("wrong arguments are refused: %s %s", async (...args) => {
  await expect(linksSuite.run(args, () => {})).rejects.toThrow(UsageError);
});
