// The steps of the image's build, which Dockerfile runs and tests run without Docker:
//   node deploy/docker/build-image-steps.mjs install build prune OUT [--platform linux/arm64]
// install: what package-lock.json says. build: JavaScript and bundles. prune: what `espalier` needs to run, into the folder OUT,
// with native code of one platform, by default this one: OS/ARCH as images or Node.js name them, and /musl for Alpine.
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { external } from "../../scripts/bundle-program.mjs";
import { packedManifest } from "../../scripts/packed-manifest.mjs";

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
/**
 * The program of the image, what it looks for by name, and the packages that are not in its bundle. Simulated engines come along
 * for compose, and for trying a configuration; of the others it reads models and scenarios.
 */
const wanted = [
  "apps/router",
  ...["@espalier/engine-sim", "@espalier/tokenizer", "@espalier/simulator", ...external].map(
    (name) => `node_modules/${name}`,
  ),
];
/** What people call them. KServe starts llm-d's picker, whose flags `espalier` takes, as /app/epp. */
const names = {
  "bin/espalier": "apps/router/bin/espalier.mjs",
  "bin/espalier-engine-sim": "apps/engine-sim/bin/engine-sim.mjs",
  epp: "apps/router/bin/espalier.mjs",
};
/** Folders beside the code of a package that it reads when it runs. */
const assets = ["migration", "models", "scenarios"];
/** What libraries publish for their developers, in folders at their top. */
const ofDevelopers =
  /\/node_modules\/(?:@[^/]+\/)?[^/]+\/(?:tests?|__tests__|examples?|benchmarks?|coverage|docs|\.github)$/;
/** Only compilers and debuggers read these. */
const skipped = /\.(?:d\.[cm]?ts|map|tsbuildinfo)$/;
/** Where zeromq keeps native code of every system. */
const addons = "node_modules/zeromq/build";

const [, , ...steps] = process.argv;
for (let at = 0; at < steps.length; at++) {
  const step = steps[at];
  if (step === "install") run("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"]);
  else if (step === "build") run("npm", ["run", "build", "--silent"]);
  else if (step === "prune" && steps[at + 1] !== undefined) {
    const out = steps[++at];
    const isGiven = steps[at + 1] === "--platform";
    if (isGiven) at += 2;
    prune(out, nativeOf(isGiven ? (steps[at] ?? failUsage()) : thisPlatform()));
  } else failUsage();
}

function failUsage() {
  fail("usage: build-image-steps.mjs [install] [build] [prune OUT [--platform OS/ARCH[/musl]]]");
}

function thisPlatform() {
  const libc = existsSync("/etc/alpine-release") ? "/musl" : "";
  return `${process.platform}/${process.arch}${libc}`;
}

/** @returns the path below `addons` of the one file that zeromq's loader takes on a platform: the newest of the ABIs listed */
function nativeOf(platform) {
  const [os, written, libc = { linux: "glibc", darwin: "libc", win32: "msvc" }[os]] = platform.split("/");
  const arch = written === "amd64" ? "x64" : written;
  const manifest = JSON.parse(readFileSync(join(root, addons, "manifest.json"), "utf8"));
  const [newest] = Object.entries(manifest)
    .map(([config, path]) => ({ ...JSON.parse(config), path: path.replaceAll("\\", "/") }))
    .filter((config) => config.os === os && config.arch === arch && config.libc === libc)
    .sort((a, b) => b.abi - a.abi);
  return newest?.path ?? fail(`no native code for ${platform}: zeromq publishes none`);
}

function run(command, args) {
  const { status } = spawnSync(command, args, { cwd: root, stdio: "inherit" });
  if (status !== 0) fail(`${command} ${args.join(" ")} failed`);
}

function fail(message) {
  process.stderr.write(`${message}\n`);
  process.exit(1);
}

/** Copies the bundles of the programs, what they read, the libraries that are not in them, and nothing else. */
function prune(out, native) {
  if (existsSync(join(out, "package.json"))) fail(`${out} is not empty`);
  const { packages } = JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8"));
  const needed = reachable(packages);
  for (const location of needed) copy(packages[location], location, out);
  for (const path of ["manifest.json", native]) cpSync(join(root, addons, path), join(out, addons, path));
  const { name, version, license, type } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  writeFileSync(join(out, "package.json"), `${JSON.stringify({ name, version, license, type, private: true })}\n`);
  for (const file of ["LICENSE", "deploy/docker/healthcheck.mjs"])
    cpSync(join(root, file), join(out, file.split("/").at(-1)));
  mkdirSync(join(out, "bin"));
  for (const [name, program] of Object.entries(names)) symlinkSync(relative(dirname(name), program), join(out, name));
}

/** @returns the locations in the lock file of everything that the programs need when they run */
function reachable(packages) {
  const found = new Set(wanted);
  for (const location of found) {
    const { link, resolved, dependencies, optionalDependencies } = packages[location];
    if (link) {
      found.add(resolved);
      continue;
    }
    // Libraries of our own packages are in the bundles.
    if (!location.includes("node_modules/")) continue;
    for (const name of Object.keys({ ...dependencies, ...optionalDependencies })) {
      const dependency = locate(packages, location, name);
      if (dependency !== undefined) found.add(dependency);
      else if (optionalDependencies?.[name] === undefined) fail(`${location} needs ${name}, which is not installed`);
    }
  }
  return found;
}

/** Where Node.js finds a library: in the nearest node_modules. Optional ones for other systems are not there. */
function locate(packages, from, name) {
  for (let folder = from; ; folder = dirname(folder)) {
    const location = folder === "." ? `node_modules/${name}` : `${folder}/node_modules/${name}`;
    if (packages[location] && existsSync(join(root, location))) return location;
    if (folder === ".") return undefined;
  }
}

function copy({ link, resolved }, location, out) {
  const target = join(out, location);
  mkdirSync(dirname(target), { recursive: true });
  if (link) symlinkSync(relative(dirname(location), resolved), target);
  else if (location.includes("node_modules/")) copyFolder(location, target, /\/node_modules$|\/zeromq\/build$/);
  else copyPackage(location, target);
}

/** A package of this repository: its manifest, its programs, and what it publishes. */
function copyPackage(location, target) {
  const manifest = JSON.parse(readFileSync(join(root, location, "package.json"), "utf8"));
  const { files = [], bin = {} } = manifest;
  // Its code is in bundles: its own, or those of others.
  const code = external.includes(manifest.name) ? ["dist"] : Object.keys(bin).length > 0 ? ["dist/bundle"] : [];
  for (const name of [...code, ...Object.values(bin), ...assets.filter((each) => files.includes(each))]) {
    const source = join(location, name);
    if (existsSync(join(root, source))) copyFolder(source, join(target, name), /^$/);
    else fail(`${source} is missing: build first`);
  }
  writeFileSync(join(target, "package.json"), `${JSON.stringify(packedManifest(manifest))}\n`);
}

function copyFolder(source, target, except) {
  const from = join(root, source);
  cpSync(from, target, {
    recursive: true,
    filter: (path) => path === from || !(skipped.test(path) || ofDevelopers.test(path) || except.test(path)),
  });
}
