import { posix } from "node:path";
import { type Tree, violation } from "./tree.ts";

interface Locked {
  readonly os?: readonly string[];
  readonly hasInstallScript?: boolean;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

interface Lock {
  readonly file: string;
  readonly text: string;
  /** Path from the folder of the lock file -> what is installed there. */
  readonly packages: ReadonlyMap<string, Locked>;
}

const installed = "node_modules/";

/** A package of native code is named after the system that it is for. */
const systemName =
  /(?<![a-z])(aix|android|darwin|freebsd|linux|netbsd|openbsd|openharmony|sunos|win32|windows)(?![a-z])/;

function locksOf(tree: Tree): Lock[] {
  return [...tree]
    .filter(([file]) => posix.basename(file) === "package-lock.json")
    .map(([file, text]) => {
      const { packages } = JSON.parse(text) as { readonly packages: Readonly<Record<string, Locked>> };
      return { file, text, packages: new Map(Object.entries(packages)) };
    });
}

/**
 * A lock file holds the native packages of every system. npm drops those of other systems when it writes one beside an installed
 * `node_modules`; then `npm ci` fails, or installs no native package, on a machine of another kind.
 */
export function checkPlatforms(tree: Tree): string[] {
  return locksOf(tree).flatMap(({ file, text, packages }) =>
    [...packages].flatMap(([path, { optionalDependencies = {} }]) =>
      Object.keys(optionalDependencies).flatMap((name) => {
        const found = findFrom(packages, path, name);
        const isWhole = found !== undefined && (!systemName.test(name) || found.os !== undefined);
        const lack = found === undefined ? name : `the system of ${name}`;
        const place = text.indexOf(`"${path}": {`);
        const advice = "remove node_modules, then npm install --package-lock-only";
        return isWhole ? [] : [violation(file, text, place, `${path} lacks ${lack}: ${advice}`)];
      }),
    ),
  );
}

/** What a package imports by a name: that of its own folder, or of the nearest folder above. */
function findFrom(packages: ReadonlyMap<string, Locked>, path: string, name: string): Locked | undefined {
  for (let folder = path; ; folder = folder.slice(0, Math.max(0, folder.lastIndexOf(installed) - 1))) {
    const found = packages.get(posix.join(folder, installed, name));
    if (found !== undefined || folder === "") return found;
  }
}

/** `allowScripts` beside a lock file answers for each locked package with an install script, so that npm does not ask, and for no other. */
export function checkInstallScripts(tree: Tree): string[] {
  return locksOf(tree).flatMap(({ file, packages }) => {
    const manifest = posix.join(posix.dirname(file), "package.json");
    const text = tree.get(manifest) ?? "{}";
    const { allowScripts = {} } = JSON.parse(text) as { readonly allowScripts?: Readonly<Record<string, boolean>> };
    const scripted = new Set(
      [...packages].flatMap(([path, { hasInstallScript }]) => (hasInstallScript ? [nameOf(path)] : [])),
    );
    return [
      ...[...scripted].filter((name) => !(name in allowScripts)).map((name) => `allowScripts lacks ${name}`),
      ...Object.keys(allowScripts)
        .filter((name) => !scripted.has(name))
        .map((name) => `allowScripts has ${name}, which has no install script`),
    ].map((message) => violation(manifest, text, text.indexOf('"allowScripts"'), message));
  });
}

const nameOf = (path: string): string => path.slice(path.lastIndexOf(installed) + installed.length);
