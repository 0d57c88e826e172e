import { posix } from "node:path";
import { type Tree, violation } from "./tree.ts";

/**
 * Arrows between folders of one package that run up: without them no folder is imported by what it imports. A list that only
 * shrinks: by package, `from -> to`.
 */
const upward: Readonly<Record<string, readonly string[]>> = {
  "packages/simulator": ["fleet -> delayed", "fleet -> rivals"],
};

interface Arrow {
  readonly from: string;
  readonly to: string;
  /** The first import that makes it. */
  readonly file: string;
  readonly offset: number;
}

/** Arrows between folders directly below `src`, by package and then as `from -> to`. Files beside them wire them, and count for none. */
function arrowsOf(tree: Tree): Map<string, Map<string, Arrow>> {
  const byPackage = new Map<string, Map<string, Arrow>>();
  for (const [file, text] of tree) {
    const [, folder, from] = /^((?:packages|apps)\/[^/]+|bench)\/src\/([^/]+)\/.*\.ts$/.exec(file) ?? [];
    if (folder === undefined || from === undefined) continue;
    for (const match of text.matchAll(/^[^'"`\n]*(?:from |import\()"(\.[^"]+)"/gm)) {
      const target = posix.relative(`${folder}/src`, posix.join(posix.dirname(file), match[1] ?? ""));
      const [to = "", ...rest] = target.split("/");
      if (to === from || to === ".." || rest.length === 0) continue;
      const arrows = byPackage.get(folder) ?? new Map<string, Arrow>();
      byPackage.set(folder, arrows);
      const name = `${from} -> ${to}`;
      if (!arrows.has(name)) arrows.set(name, { from, to, file, offset: match.index });
    }
  }
  return byPackage;
}

/** Whether one folder imports another, directly or through others. */
function reaches(arrows: readonly Arrow[], from: string, to: string): boolean {
  const seen = new Set([from]);
  for (const each of seen) {
    for (const arrow of arrows) if (arrow.from === each) seen.add(arrow.to);
  }
  return from !== to && seen.has(to);
}

/** Folders of a package import downwards, as packages do. */
export function checkFolders(tree: Tree, allowed: Readonly<Record<string, readonly string[]>> = upward): string[] {
  const found: string[] = [];
  const byPackage = arrowsOf(tree);
  for (const [folder, arrows] of byPackage) {
    const listed = allowed[folder] ?? [];
    const down = [...arrows].flatMap(([name, arrow]) => (listed.includes(name) ? [] : [arrow]));
    for (const { from, to, file, offset } of down.filter((arrow) => reaches(down, arrow.to, arrow.from)))
      found.push(violation(file, tree.get(file) ?? "", offset, `closes a circle: ${from} -> ${to}, and back`));
  }
  for (const [folder, names] of Object.entries(allowed))
    for (const name of names) {
      const arrows = byPackage.get(folder);
      const arrow = arrows?.get(name);
      const down = [...(arrows ?? [])].flatMap(([each, it]) => (names.includes(each) ? [] : [it]));
      if (!arrow || !reaches(down, arrow.to, arrow.from))
        found.push(`test/tidy/folders.ts:1 allows ${name} in ${folder}, which needs no leave any more`);
    }
  return found;
}
