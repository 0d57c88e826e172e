import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { importsOf, parseModule, resolveRelative } from "./syntax.ts";
import { lineAt, loadTree, renderViolations } from "./tree.ts";

let root = "";
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "espalier-tidy-"));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

test("the tree holds what git tracks or would track, and nothing else", () => {
  const git = (...words: string[]) => execFileSync("git", words, { cwd: root, stdio: "ignore" });
  git("init");
  mkdirSync(join(root, "docs"));
  const texts = { ".gitignore": "dist\n", "docs/ä b.md": "é\n", "gone.ts": "", "tracked.ts": "1;\n", dist: "made" };
  for (const [path, text] of Object.entries(texts)) writeFileSync(join(root, path), text);
  writeFileSync(join(root, "picture.png"), Uint8Array.of(0x89, 0, 0xff));
  symlinkSync("tracked.ts", join(root, "link.ts"));
  git("add", "tracked.ts", "gone.ts");
  rmSync(join(root, "gone.ts"));
  expect([...loadTree(root)]).toEqual([
    [".gitignore", "dist\n"],
    ["docs/ä b.md", "é\n"],
    ["picture.png", "\u0089\0ÿ"],
    ["tracked.ts", "1;\n"],
  ]);
});

test("lines are counted from 1, with or without a newline at the end", () => {
  expect([0, 1, 2, 3, 4].map((offset) => lineAt("a\n\nb", offset))).toEqual([1, 1, 2, 3, 3]);
  expect(lineAt("a\nb", -1)).toBe(1);
});

test("violations are rendered in order of file and line", () => {
  const at = (file: string, line: number) => ({ file, line, message: "is wrong: mend it" });
  expect(renderViolations([at("b.ts", 2), at("a.ts", 10), at("b.ts", 1), at("a.ts", 9)])).toBe(
    "a.ts:9 is wrong: mend it\na.ts:10 is wrong: mend it\nb.ts:1 is wrong: mend it\nb.ts:2 is wrong: mend it",
  );
});

test("positions are right behind characters of more than one byte", () => {
  const module = parseModule("a.ts", "// ä€😀\nconst a = 'é😀';\nimport { b } from \"./b.ts\"; // end\n");
  expect(importsOf(module)).toEqual([{ specifier: "./b.ts", names: ["b"], isUrl: false, line: 3 }]);
  expect(module.comments.map(({ text, start }) => [text, lineAt(module.text, start)])).toEqual([
    [" ä€😀", 1],
    [" end", 3],
  ]);
});

test("a relative import is resolved from its file; built names stand for sources", () => {
  const tree = new Map([
    ["packages/a/src/b.ts", ""],
    ["scripts/c.js", ""],
  ]);
  expect(resolveRelative(tree, "packages/a/src/deep/x.ts", "../b.ts")).toBe("packages/a/src/b.ts");
  expect(resolveRelative(tree, "packages/a/src/x.ts", "./b.js")).toBe("packages/a/src/b.ts");
  expect(resolveRelative(tree, "scripts/x.mjs", "./c.js")).toBe("scripts/c.js");
  expect(resolveRelative(tree, "scripts/x.mjs", "./d.js")).toBeUndefined();
});
