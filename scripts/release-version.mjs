// `npm run release:version`: after `changeset version` has given every package its next version, the repository and its lock file get it too.
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";

const { version } = JSON.parse(readFileSync("apps/router/package.json", "utf8"));
const manifest = JSON.parse(readFileSync("package.json", "utf8"));
writeFileSync("package.json", `${JSON.stringify({ ...manifest, version }, null, 2)}\n`);
const flags = ["--package-lock-only", "--omit-lockfile-registry-resolved", "--loglevel=error"];
const { status } = spawnSync("npm", ["install", ...flags], { stdio: "inherit" });
process.exit(status ?? 1);
