import { execFileSync } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { buildGoProgram, type GoSource } from "../src/pickers/build-go-program.ts";
import { llmdConfiguration, llmdSource } from "../src/pickers/llmd-picker.ts";

function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "pickers-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A repository with two commits, and a Go command that copies a file in place of compiling. */
function newSource() {
  const folder = newFolder();
  const git = (...args: readonly string[]) =>
    execFileSync("git", ["-C", folder, "-c", "user.name=A", "-c", "user.email=a@b", ...args], { encoding: "utf8" });
  git("init", "--quiet");
  git("config", "uploadpack.allowAnySHA1InWant", "true");
  const commits = ["first", "second"].map((text) => {
    writeFileSync(join(folder, "main.go"), text);
    git("add", ".");
    git("commit", "--quiet", "-m", text);
    return git("rev-parse", "HEAD").trim();
  });
  const go = join(newFolder(), "go");
  writeFileSync(go, '#!/bin/sh\n[ "$CGO_ENABLED" = 0 ] && cp main.go "$5" && echo "$@" >> "$5"\n');
  chmodSync(go, 0o755);
  const source = (at: number): GoSource => ({
    name: "picker",
    repository: folder,
    commit: commits[at] ?? "",
    package: "./cmd/epp",
    linkerFlags: "-s -w",
  });
  return { source, go };
}

test("a program is built from the named commit, once, and its sources do not stay", async () => {
  const { source, go } = newSource();
  const notes: string[] = [];
  const options = { folder: newFolder(), go, note: (line: string) => void notes.push(line) };
  const program = await buildGoProgram(source(0), options);
  expect(readFileSync(program, "utf8")).toMatch(/^firstbuild -ldflags -s -w -o \S+ \.\/cmd\/epp\n$/);
  expect(existsSync(join(program, "..", "source"))).toBe(false);
  expect(notes).toHaveLength(2);
  expect(await buildGoProgram(source(0), options)).toBe(program);
  expect(notes).toHaveLength(2);
  expect(readFileSync(await buildGoProgram(source(1), options), "utf8")).toMatch(/^second/);
});

test("a build that fails leaves no program behind, and the next one starts anew", async () => {
  const { source, go } = newSource();
  const options = { folder: newFolder(), note: () => {} };
  await expect(buildGoProgram(source(0), { ...options, go: "false" })).rejects.toThrow("ended with 1");
  const unknown = { ...source(0), commit: "0".repeat(40) };
  await expect(buildGoProgram(unknown, { ...options, go })).rejects.toThrow(/^git /);
  expect(readFileSync(await buildGoProgram(source(0), { ...options, go }), "utf8")).toMatch(/^first/);
});

test("llm-d's picker: the exact commit, engines from the file, and scorers with the weights of its recommendation", () => {
  expect(llmdSource.commit).toMatch(/^[0-9a-f]{40}$/);
  expect(llmdSource.linkerFlags).toContain(llmdSource.commit);
  expect(llmdConfiguration("/a/b.json")).toMatchObject({
    plugins: [{ type: "file-discovery", parameters: { path: "/a/b.json" } }, {}, {}, {}, {}, {}],
    schedulingProfiles: [{ plugins: expect.arrayContaining([{ pluginRef: "prefix-cache-scorer", weight: 3 }]) }],
  });
});
