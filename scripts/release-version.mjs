// `npm run release:version`: after `changeset version` has given every package its next version, the repository, its lock file and
// what is deployed get it too. Needs Helm, for the manifests (deploy/helm/render.mjs).
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { deployedFiles, withVersion } from "../deploy/deployed-version.mjs";
import { root } from "./set-up.mjs";

const { version } = JSON.parse(readFileSync(join(root, "apps/router/package.json"), "utf8"));
const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
writeFileSync(join(root, "package.json"), `${JSON.stringify({ ...manifest, version }, null, 2)}\n`);
for (const file of deployedFiles) {
  const path = join(root, file);
  writeFileSync(path, withVersion(readFileSync(path, "utf8"), manifest.version, version));
}
run("npm", "install", "--package-lock-only", "--omit-lockfile-registry-resolved", "--loglevel=error");
run(process.execPath, "deploy/helm/render.mjs");

function run(command, ...args) {
  const { status } = spawnSync(command, args, { cwd: root, stdio: "inherit" });
  if (status !== 0) process.exit(status ?? 1);
}
