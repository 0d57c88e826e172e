// cspell:ignore unstub
import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { type CompiledConfig, flagCatalogue } from "@espalier/server";
import { Command } from "commander";
import { beforeEach, expect, test, vi } from "vitest";
import { addConfigFlags, configFile, createConfigReader, readConfig } from "../src/commands/config-flags.ts";
import { temporaryFile } from "./temporary.ts";

beforeEach(() => {
  for (const name of Object.keys(process.env)) if (name.startsWith("ESPALIER_")) vi.stubEnv(name, undefined);
  vi.stubEnv("ESPALIER_CONFIG", "");
  return () => vi.unstubAllEnvs();
});

function read(...written: string[]): CompiledConfig {
  const command = addConfigFlags(new Command("serve").exitOverride().configureOutput({ writeErr: () => {} }));
  command.parse(written, { from: "user" });
  return readConfig(command, configFile(command));
}

test("every flag of the configuration is a flag of the command, under its heading", () => {
  const command = addConfigFlags(new Command("serve"));
  const flags = command.options.filter(({ hidden }) => !hidden).map(({ long }) => long);
  expect(flags).toEqual(["--config", "--config-folder", ...flagCatalogue.map(({ flag }) => flag)]);
  const help = command.helpInformation();
  for (const { flag, group, description } of flagCatalogue) {
    expect(help).toContain(`${flag} <`);
    expect(help).toContain(group);
    expect(help.replaceAll(/\s+/g, " ")).toContain(description.replaceAll(/\s+/g, " "));
  }
});

test("flags become the configuration; those that may be repeated gather", () => {
  const config = read(
    ...["--listen-port", "0", "--admin-port", "0", "--policy", "consistent_hashing", "--policy-load-factor", "2"],
    ...["--engine", "http://127.0.0.1:8000", "--engine", "http://127.0.0.1:8001", "--drain-grace", "90s"],
    ...["--limits-max-body-bytes", "1MiB", "--inject-usage", "false"],
  );
  expect(config.listen.port).toBe(0);
  expect(config.policy).toMatchObject({ name: "consistent_hashing", options: { "load-factor": 2 } });
  expect(config.engines.map(({ url }) => url)).toEqual(["http://127.0.0.1:8000", "http://127.0.0.1:8001"]);
  expect(config.drain.graceMs).toBe(90_000);
  expect(config.limits.maxBodyBytes).toBe(1_048_576);
  expect(config.injectUsage).toBe(false);
});

test("several values behind one flag, as other routers take them", () => {
  const { engines, policy, health } = read(
    ...["--worker-urls", "http://a:1", "http://b:1", "--policy", "cache_aware"],
    ...["--worker-urls", "http://c:1", "--health-check-interval-secs", "60"],
  );
  expect(engines.map(({ url }) => url)).toEqual(["http://a:1", "http://b:1", "http://c:1"]);
  expect([policy.name, health.intervalMs]).toEqual(["cache_aware", 60_000]);
});

test("flags of other routers set the same, and stand beside ours in the help", () => {
  const { policy } = read("--policy", "cache_aware", "--cache-threshold", "0.5", "--balance-abs-threshold", "32");
  expect(policy.options).toEqual({ "cache-threshold": 0.5, "balance-abs-threshold": 32 });
  expect(() => read("--policy", "cache_aware", "--cache-threshold", "0.5", "--policy-cache-threshold", "0.5")).toThrow(
    "--cache-threshold is an alias of --policy-cache-threshold",
  );
  const help = addConfigFlags(new Command("serve")).helpInformation().replaceAll(/\s+/g, " ");
  expect(help).toContain("Also --cache-threshold.");
});

test("flags go before the environment, the environment before the file, the file before the defaults", () => {
  const file = temporaryFile("espalier.yaml", "listen: { port: 1, host: 127.0.0.2 }\nadmin: { port: 4 }\n");
  vi.stubEnv("ESPALIER_LISTEN_PORT", "2");
  vi.stubEnv("ESPALIER_ADMIN_PORT", "5");
  const { listen, admin, log } = read("--config", file, "--listen-port", "3");
  expect([listen.port, listen.host, admin.port, log.level]).toEqual([3, "127.0.0.2", 5, "info"]);
});

test("a configuration of nothing is complete", () => {
  expect(read()).toMatchObject({ listen: { host: "127.0.0.1", port: 8_080 }, engines: [] });
});

test("a mistake names the flag that holds it", () => {
  expect(() => read("--listen-port", "http")).toThrow(
    'listen.port: "http" is not an integer from 0 to 65535 (--listen-port)',
  );
});

test("a mistake in the file names line and column", () => {
  const file = temporaryFile("espalier.yaml", "listen:\n  prot: 1\n");
  expect(() => read("-c", file)).toThrow(`listen.prot: is not a known key; did you mean port? (${file}:2:3)`);
});

test("a file that cannot be read is an error of its own", () => {
  expect(() => read("-c", "/nowhere/espalier.yaml")).toThrow(
    expect.objectContaining({ code: "config_unreadable", message: expect.stringContaining("/nowhere/espalier.yaml") }),
  );
});

test("a flag that does not exist is refused with the nearest one", () => {
  expect(() => read("--listen-prot", "1")).toThrow(/unknown option '--listen-prot'[\s\S]*--listen-port/);
});

test("a flag that was replaced is answered with the one that replaced it", () => {
  const said: string[] = [];
  const outer = new Command("serve").exitOverride().configureOutput({ writeErr: (text) => said.push(text) });
  expect(() => addConfigFlags(outer).parse(["--policy-objective", "e2e"], { from: "user" })).toThrow();
  expect(said).toEqual(["error: --policy-objective is replaced by --slo-tpot\n"]);
});

test("secrets stand in files of their own, of 64 KiB at most", () => {
  const secret = temporaryFile("secret", "the-key-of-admins\n");
  const config = temporaryFile("espalier.yaml", `admin: { key: "\${file:${secret}}" }`);
  expect(read("--config", config).admin.keySha256).toEqual(createHash("sha256").update("the-key-of-admins").digest());
  const long = temporaryFile("long", "x".repeat(65_537));
  const other = temporaryFile("other.yaml", `admin: { key: "\${file:${long}}" }`);
  expect(() => read("--config", other)).toThrow(/it has 65537 bytes, more than 65536/);
});

test("a configuration is parsed anew when a file that it is of has changed, and not before", () => {
  const key = temporaryFile("key", "sk-the-first-one\n");
  const file = temporaryFile("espalier.yaml", `api-keys: [{ name: a, key: "\${file:${key}}" }]\n`);
  const command = addConfigFlags(new Command("serve"));
  command.parse(["--config", file], { from: "user" });
  const readAgain = createConfigReader(command, file);
  const first = readAgain();
  expect(readAgain()).toBe(first);
  writeFileSync(key, "sk-another-one\n");
  const second = readAgain();
  expect(second).not.toEqual(first);
  writeFileSync(file, "api-keys: 7\n");
  expect(readAgain).toThrow("api-keys");
  expect(readAgain).toThrow("api-keys");
  writeFileSync(file, "{}\n");
  expect(readAgain().engines).toEqual([]);
});

test("the file is the flag's, or the environment's, or the first usual one that exists; set to nothing it is none", () => {
  const [first, second] = [temporaryFile("espalier.yaml", ""), temporaryFile("espalier.yaml", "")];
  const fileOf = (usual: readonly string[], ...written: string[]) => {
    const command = addConfigFlags(new Command("serve"));
    command.parse(written, { from: "user" });
    return configFile(command, usual);
  };
  expect(fileOf([first, second])).toBeUndefined();
  vi.stubEnv("ESPALIER_CONFIG", undefined);
  expect([fileOf([first, second]), fileOf(["/nowhere.yaml", second]), fileOf([])]).toEqual([first, second, undefined]);
  vi.stubEnv("ESPALIER_CONFIG", "of-the-environment.yaml");
  expect([fileOf([first]), fileOf([first], "-c", "of-the-flag.yaml")]).toEqual([
    "of-the-environment.yaml",
    "of-the-flag.yaml",
  ]);
});

test("an engine that is named by host and port alone is one that speaks HTTP", () => {
  const { engines } = read("--engine", "127.0.0.1:22000", "--engine", "gpu-7:8000/prefix", "--engine", "[::1]:8000");
  expect(engines.map(({ id, url }) => [id, url])).toEqual([
    ["127.0.0.1:22000", "http://127.0.0.1:22000"],
    ["gpu-7:8000/prefix", "http://gpu-7:8000/prefix"],
    ["[::1]:8000", "http://[::1]:8000"],
  ]);
  const file = temporaryFile("espalier.yaml", "engines: [127.0.0.1:22000, { url: gpu-7:8000 }]");
  expect(read("-c", file).engines.map(({ url }) => url)).toEqual(["http://127.0.0.1:22000", "http://gpu-7:8000"]);
  for (const wrong of ["ftp://a:1", "gpu-7", "user@a:1", "a:port"]) {
    expect(() => read("--engine", wrong)).toThrow("is not an http:// or https:// URL");
  }
});

test("relative paths of the file start at its folder, or at the one that is named", () => {
  const file = temporaryFile(
    "espalier.json",
    JSON.stringify({ plugins: ["hook.mjs"], mesh: { secret: `\${file:key}` } }),
  );
  const named = dirname(temporaryFile("key", "0123456789abcdef"));
  expect(() => read("--config", file)).toThrow("the file key cannot be read");
  const { plugins, mesh } = read("--config", file, "--config-folder", named);
  expect([plugins, mesh.secret?.reveal()]).toEqual([[join(named, "hook.mjs")], "0123456789abcdef"]);
});
