/**
 * Symptom: installed from its tarballs, the demo died. Mechanism: what a package reads at run time stood beside it in the
 * repository and not in its `files`, where no test of the repository misses it.
 */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { start } from "../e2e/program.ts";
import { root } from "./files.ts";

interface Workspace {
  readonly folder: string;
  readonly dependencies: readonly string[];
}

/** Packages of this repository by their names. */
const workspaces = new Map(
  ["packages", "apps"].flatMap((parent) =>
    readdirSync(join(root, parent)).map((name): readonly [string, Workspace] => {
      const folder = join(root, parent, name);
      const manifest = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
      return [manifest.name, { folder, dependencies: Object.keys(manifest.dependencies ?? {}) }];
    }),
  ),
);

/** A package with all that it needs when it runs. */
function withAllNeeded(name: string, found = new Set<string>()): ReadonlySet<string> {
  if (found.has(name)) return found;
  found.add(name);
  for (const needed of workspaces.get(name)?.dependencies ?? []) withAllNeeded(needed, found);
  return found;
}

/** What `npm install` of tarballs makes: our packages as they are packed, the others' as they are installed here. */
function installPacked(name: string): string {
  const folder = mkdtempSync(join(tmpdir(), "espalier-tarballs-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const needed = [...withAllNeeded(name)];
  const own = needed.filter((one) => workspaces.has(one));
  const selected = own.flatMap((one) => ["--workspace", one]);
  execFileSync("npm", ["pack", "--silent", "--ignore-scripts", "--pack-destination", folder, ...selected], {
    cwd: root,
    stdio: "ignore",
  });
  for (const tarball of readdirSync(folder).filter((file) => file.endsWith(".tgz"))) {
    const packed = `@espalier/${/^espalier-(.+)-\d+\.\d+\.\d+\.tgz$/.exec(tarball)?.[1]}`;
    const target = join(folder, "node_modules", packed);
    mkdirSync(target, { recursive: true });
    execFileSync("tar", ["-xzf", join(folder, tarball), "-C", target, "--strip-components=1"]);
  }
  for (const one of needed.filter((other) => !workspaces.has(other))) {
    const users = own.filter((user) => workspaces.get(user)?.dependencies.includes(one));
    const places = [...users.map((user) => workspaces.get(user)?.folder ?? root), root];
    const installed = places.map((place) => join(place, "node_modules", one)).find((path) => existsSync(path));
    const link = join(folder, "node_modules", one);
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(installed ?? "", link);
  }
  return join(folder, "node_modules", name);
}

test("installed from its tarballs, the demo answers, its page and the description of its API are there, and Ctrl-C ends it", async () => {
  const router = installPacked("@espalier/router");
  const script = join(router, "bin", "espalier.mjs");
  const flags = ["--port", "0", "--admin-port", "0", "--engines", "1", "--routers", "1"];
  const program = start(["demo", ...flags], { script });
  const died = program.ended.then(({ stderr }) => Promise.reject(new Error(`the demo ended: ${stderr}`)));
  await Promise.race([program.until(/Ctrl-C ends everything/), died]);
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
