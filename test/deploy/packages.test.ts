/**
 * What is published, as npm packs it: what each tarball has, whether every way to import it finds code and types, and whether
 * an empty folder that installs the tarballs has a command that runs and libraries that compile.
 *
 * Symptom: installed from its tarballs, the demo died. Mechanism: what a package reads at run time stood beside it in the
 * repository and not in its `files`, where no test of the repository misses it.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { checkPackage, createPackageFromTarballData } from "@arethetypeswrong/core";
import { publint } from "publint";
import { formatMessage } from "publint/utils";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { start } from "../e2e/program.ts";
import { copyRepository } from "./copy-repository.ts";
import { root } from "./files.ts";

interface Manifest {
  readonly folder: string;
  readonly name: string;
  readonly version: string;
  readonly private?: boolean;
  readonly engines?: object;
}

const published = ["packages", "apps"].flatMap((parent) =>
  readdirSync(join(root, parent)).map((folder): Manifest => {
    const text = readFileSync(join(root, parent, folder, "package.json"), "utf8");
    return { ...(JSON.parse(text) as Manifest), folder: join(parent, folder) };
  }),
);
const names = published.map(({ name }) => name);
const folder = mkdtempSync(join(tmpdir(), "espalier-packages-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const fileOf = ({ name, version }: Manifest): string =>
  join(folder, `${name.replace("@", "").replace("/", "-")}-${version}.tgz`);
const bytesOf = (manifest: Manifest): Uint8Array<ArrayBuffer> => new Uint8Array(readFileSync(fileOf(manifest)));

beforeAll(() => {
  // Packing changes each package.json while it goes on, which other tests read.
  const copy = copyRepository(join(folder, "repository"));
  const selected = names.flatMap((name) => ["--workspace", name]);
  execFileSync("npm", ["pack", "--silent", "--pack-destination", folder, ...selected], { cwd: copy, stdio: "ignore" });
}, 300_000);

test("every package is published, for the releases of Node that the repository names", () => {
  const { engines, version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as Manifest;
  for (const manifest of published) expect(manifest).toMatchObject({ engines, version });
  expect(published.filter((manifest) => manifest.private)).toEqual([]);
  expect(readdirSync(folder).filter((name) => name.endsWith(".tgz"))).toHaveLength(published.length);
});

describe.each(published)("$name", (manifest) => {
  test("has its code, its types, a README and the license, and nothing that only its build or its tests need", () => {
    const files = execFileSync("tar", ["-tzf", fileOf(manifest)], { encoding: "utf8" })
      .trim()
      .split("\n");
    for (const needed of ["dist/index.js", "dist/index.d.ts", "LICENSE", "README.md", "package.json"]) {
      expect(files).toContain(`package/${needed}`);
    }
    const models = files.filter((file) => file.startsWith("package/models/"));
    expect(models.length > 0).toBe(manifest.name === "@espalier/tokenizer");
    const licenses = ["@espalier/dashboard", "@espalier/engine-sim", "espalier-router"];
    expect(files.some((file) => file.endsWith("/LICENSES.txt"))).toBe(licenses.includes(manifest.name));
    expect(files.filter((file) => /tsbuildinfo|\.turbo|\.test\.|^package\/test\//.test(file))).toEqual([]);
  });

  test("publint finds nothing", async () => {
    const { messages, pkg } = await publint({ pack: { tarball: bytesOf(manifest).buffer }, strict: true });
    expect(messages.map((message) => formatMessage(message, pkg, { color: false }))).toEqual([]);
  });

  test("its types are found by everyone who can import it: ES modules and bundlers", async () => {
    // Simulated engines can be started as a program, which has no types.
    const excludeEntrypoints = ["./bin"];
    const checked = await checkPackage(createPackageFromTarballData(bytesOf(manifest)), { excludeEntrypoints });
    const problems = checked.types ? checked.problems : [{ kind: "NoTypes" }];
    // There is no CommonJS: Node loads ES modules by `require` too, and older resolution is not for packages with `exports`.
    const isAccepted = (problem: (typeof problems)[number]): boolean =>
      problem.kind === "CJSResolvesToESM" || ("resolutionKind" in problem && problem.resolutionKind === "node10");
    expect(problems.filter((problem) => !isAccepted(problem))).toEqual([]);
  });
});

interface Locked {
  readonly link?: boolean;
  readonly dev?: boolean;
}

/**
 * A program that depends on the tarballs, and its lock: those, and the libraries at the versions of the repository's lock, which npm has
 * already. Without it npm asks the registry for each library, and for each of these packages, which it does not have.
 */
function createConsumer(): { readonly manifest: object; readonly lock: object } {
  const { packages, ...versions } = JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8")) as {
    readonly packages: Readonly<Record<string, Locked>>;
  };
  const tarballs = new Map(published.map((each) => [each.name, `file:${fileOf(each)}`]));
  const folders = new Map(published.map(({ name, folder: of }) => [of, name]));
  const locked: Record<string, object> = {};
  for (const [path, { dev: _, ...entry }] of Object.entries(packages)) {
    if (entry.link) continue;
    const [, of = "", rest = ""] = /^((?:packages|apps)\/[^/]+)(.*)$/.exec(path) ?? [];
    const name = folders.get(of);
    if (name === undefined) {
      if (path.startsWith("node_modules/")) locked[path] = entry;
    } else locked[`node_modules/${name}${rest}`] = rest === "" ? { ...entry, resolved: tarballs.get(name) } : entry;
  }
  const manifest = {
    name: "consumer",
    version: "0.0.0",
    private: true,
    type: "module",
    dependencies: Object.fromEntries(tarballs),
  };
  return { manifest, lock: { ...versions, name: "consumer", packages: { "": manifest, ...locked } } };
}

describe("installed in an empty folder", () => {
  const consumer = join(folder, "consumer");

  beforeAll(() => {
    cpSync(join(root, "test", "deploy", "consumer"), consumer, { recursive: true });
    cpSync(join(root, "examples", "embedding"), consumer, { recursive: true });
    cpSync(join(root, "examples", "plugins"), join(consumer, "plugins"), { recursive: true });
    const { manifest, lock } = createConsumer();
    writeFileSync(join(consumer, "package.json"), JSON.stringify(manifest));
    writeFileSync(join(consumer, "package-lock.json"), JSON.stringify(lock));
    const quiet = ["--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error"];
    execFileSync("npm", ["ci", ...quiet], { cwd: consumer, stdio: "inherit", timeout: 280_000 });
  }, 300_000);

  test("the demo answers, its page and the description of its API are there, and Ctrl-C ends it", async () => {
    const script = join(consumer, "node_modules", "espalier-router", "bin", "espalier.mjs");
    const program = start(["demo", "--port", "0", "--admin-port", "0", "--engines", "1", "--routers", "1"], { script });
    const died = program.ended.then(({ stderr }) => Promise.reject(new Error(`the demo ended: ${stderr}`)));
    await Promise.race([program.until(/Ctrl-C stops everything/), died]);
    const [, url = ""] = /curl -N (\S+)/.exec(program.stdout()) ?? [];
    const body = JSON.stringify({ model: "sim-model", max_tokens: 3, messages: [{ role: "user", content: "hello" }] });
    const answer = await fetch(url, { method: "POST", headers: { "content-type": "application/json" }, body });
    expect(answer.status).toBe(200);
    const [, page = ""] = /^dashboard +(\S+)$/m.exec(program.stdout()) ?? [];
    for (const file of ["", "app.js", "style.css"]) expect((await fetch(page + file)).status, file).toBe(200);
    const description = await fetch(new URL("/admin/openapi.json", page));
    expect(await description.json()).toMatchObject({ openapi: "3.1.0", info: { title: "Espalier admin API" } });
    program.killGroup("SIGINT");
    expect((await program.ended).stderr).not.toMatch(/Error/);
  });

  const inConsumer = (command: string, ...args: readonly string[]): string => {
    const { status, stdout, stderr } = spawnSync(command, args, { cwd: consumer, encoding: "utf8" });
    expect([status, status === 0 ? "" : stdout + stderr]).toEqual([0, ""]);
    return stdout;
  };

  test("the scenarios of simulations are there", () => {
    expect(inConsumer("npx", "espalier", "simulate", "--list")).toContain("engine-churn");
  });

  test("the tables of other routers are there", () => {
    const words = ["--worker-urls", "http://a:1", "--policy", "manual"];
    expect(inConsumer("npx", "espalier", "migrate", "--from", "smg", "--", ...words)).toContain("name: sticky");
  });

  test("npx finds the command, and a plugin beside the configuration counts", () => {
    const { version } = published.find(({ name }) => name === "espalier-router")!;
    expect(inConsumer("npx", "espalier", "--version").trim()).toBe(version);
    writeFileSync(join(consumer, "espalier.yaml"), "plugins: [plugins/short-queue.mjs]\npolicy: short_queue\n");
    expect(inConsumer("npx", "espalier", "check-config", "--changed", "--config", "espalier.yaml")).toContain(
      "short_queue",
    );
  });

  test("the examples run", () => {
    expect(inConsumer(process.execPath, "policy.mjs", "least_work")).toMatch(/^least_work: warm /);
    expect(inConsumer(process.execPath, "prefixes.mjs")).toMatch(/^server 1: 160 tokens announced/);
  });

  test.each(["nodenext", "bundler"])("a strict program compiles that resolves modules as %s", (resolution) => {
    const module = resolution === "bundler" ? "preserve" : "nodenext";
    const flags = [
      "--noEmit",
      "--strict",
      "--exactOptionalPropertyTypes",
      "--target",
      "es2023",
      "--skipLibCheck",
      "false",
    ];
    const tsc = join(root, "node_modules", "typescript", "bin", "tsc");
    const how = ["--module", module, "--moduleResolution", resolution, "--ignoreConfig"];
    inConsumer(process.execPath, tsc, ...flags, ...how, "--types", "node", "program.ts");
  });
});
