import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { loadConfig } from "@espalier/server";
import { expect, onTestFinished, test } from "vitest";
import { readText, root } from "./files.ts";

const path = "deploy/systemd/espalier.service";
const settingOf = (key: string): string | undefined => new RegExp(`^${key}=(.*)$`, "m").exec(readText(path))?.[1];

test("a stop leaves the time that a drain takes", () => {
  const { delayMs, graceMs } = loadConfig({}).drain;
  expect(Number.parseInt(settingOf("TimeoutStopSec")!, 10) * 1_000).toBeGreaterThanOrEqual(delayMs + graceMs + 5_000);
  expect(settingOf("KillMode")).toBe("mixed");
});

test("it starts what the image's build steps make, with the configuration that it has checked", () => {
  const [, program, checked] = settingOf("ExecStartPre")!.split(/ (?:check-config )?/);
  expect(settingOf("ExecStart")).toBe(`/usr/bin/node ${program} serve ${settingOf("ExecStart")!.split(" serve ")[1]}`);
  expect([program, checked]).toEqual(["/opt/espalier/apps/router/bin/espalier.mjs", "--config"]);
  expect(readText("apps/router/bin/espalier.mjs")).toContain("#!/usr/bin/env node");
});

test("it runs without rights, and may not write anywhere", () => {
  for (const key of ["NoNewPrivileges", "PrivateDevices", "ProtectHome", "ProtectKernelModules", "RestrictNamespaces"])
    expect([key, settingOf(key)]).toEqual([key, "yes"]);
  expect([settingOf("ProtectSystem"), settingOf("CapabilityBoundingSet"), settingOf("User")]).toEqual([
    "strict",
    "",
    "espalier",
  ]);
});

/** What systemd has against a unit. */
function complaintsOf(unit: string): readonly string[] {
  const { stderr } = spawnSync("systemd-analyze", ["verify", unit], { cwd: root, encoding: "utf8" });
  // Where the program is not installed it says so.
  const isAbsent = /is not executable: No such file/;
  return stderr.split("\n").filter((line) => line.includes("espalier.service") && !isAbsent.test(line));
}

if (spawnSync("systemd-analyze", ["--version"]).status !== 0) {
  process.stderr.write("NOT RUN: systemd's own check of the unit; needs systemd-analyze\n");
} else {
  test("systemd takes the drop-in for several processes, which take the variable and that many times the memory", () => {
    const folder = mkdtempSync(join(tmpdir(), "espalier-unit-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const unit = join(folder, "espalier.service");
    writeFileSync(unit, readText(path));
    mkdirSync(`${unit}.d`);
    const dropIn = readText("deploy/systemd/processes.conf");
    for (const [text, reported] of [
      [dropIn, []],
      [dropIn.replace("OOMPolicy=", "OOMPolice="), [expect.stringContaining("OOMPolice")]],
    ] as const) {
      writeFileSync(join(`${unit}.d`, "processes.conf"), text);
      expect(complaintsOf(unit)).toEqual(reported);
    }
    const [, name = "", value = ""] = /^Environment=(\w+)=(\w+)$/m.exec(dropIn) ?? [];
    expect(loadConfig({ env: { [name]: value } }).processes).toBe("auto");
    for (const key of ["MemoryHigh", "MemoryMax"]) {
      const gigabytes = Number(new RegExp(`^${key}=(\\d+)G$`, "m").exec(dropIn)?.[1]);
      expect([key, gigabytes]).toEqual([key, 4 * Number.parseInt(settingOf(key)!, 10)]);
    }
  });

  test("systemd takes every line of it, and would tell of one that it does not know", () => {
    expect(complaintsOf(path)).toEqual([]);
    const folder = mkdtempSync(join(tmpdir(), "espalier-unit-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const broken = join(folder, "espalier.service");
    writeFileSync(broken, readText(path).replace("Restart=", "Restrat="));
    expect(complaintsOf(broken)).toEqual([expect.stringContaining("Restrat")]);
  });
}
