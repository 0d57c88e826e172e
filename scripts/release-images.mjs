// `node scripts/release-images.mjs ghcr.io/OWNER`: builds the image for every platform and pushes it as OWNER/espalier, then the
// chart, which takes that image, as OWNER/charts/espalier; both by the version of package.json. Needs Podman 4 and Helm 3, logged in.
// `--insecure` is for a registry without TLS, to try it. In a workflow the outputs have names and digests.
import { execFileSync, spawnSync } from "node:child_process";
import { appendFileSync, cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { root } from "./set-up.mjs";

/** The machine of each platform's programs, as their ELF headers name it. */
const machines = { "linux/amd64": 62, "linux/arm64": 183 };
const steps = ["deploy/docker/build-image-steps.mjs"];

const { positionals, values } = parseArgs({ allowPositionals: true, options: { insecure: { type: "boolean" } } });
const [place] = positionals;
if (place === undefined || positionals.length > 1) {
  process.stderr.write("usage: release-images.mjs REGISTRY/OWNER [--insecure]\n");
  process.exit(2);
}
const tls = values.insecure ? ["--tls-verify=false"] : [];
/** Registries take no capitals, which owners may have. */
const registry = place.toLowerCase();
const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const scratch = mkdtempSync(join(tmpdir(), "espalier-release-"));
try {
  const image = `${registry}/espalier`;
  output({
    image,
    image_digest: pushImage(image),
    chart: `${registry}/charts/espalier`,
    chart_digest: pushChart(image),
  });
} finally {
  rmSync(scratch, { recursive: true, force: true });
}

/** @returns the digest of the list of images */
function pushImage(image) {
  const name = `${image}:${version}`;
  run(process.execPath, ...steps, "install", "build");
  spawnSync("podman", ["manifest", "rm", name], { stdio: "ignore" });
  run("podman", "manifest", "create", name);
  for (const platform of Object.keys(machines))
    run("podman", "manifest", "add", name, `containers-storage:${build(platform)}`);
  const digest = join(scratch, "digest");
  run("podman", "manifest", "push", "--all", `--digestfile=${digest}`, ...tls, name, `docker://${name}`);
  return readFileSync(digest, "utf8").trim();
}

/** @returns the image's id */
function build(platform) {
  const context = join(scratch, platform);
  run(process.execPath, ...steps, "prune", join(context, "out"), "--platform", platform);
  // The last stage alone: for a platform in one stage and none in the next, Podman 4 takes the same base.
  const [, ...stages] = readFileSync(join(root, "deploy/docker/Dockerfile"), "utf8").split(/^(?=FROM )/m);
  writeFileSync(join(context, "Dockerfile"), stages.at(-1).replace("--from=build /out", "out"));
  const id = join(scratch, "id");
  // OCI's format has no health check. A base that is there already may be of another platform.
  run(
    "podman",
    "build",
    "--format=docker",
    `--platform=${platform}`,
    "--pull=always",
    `--iidfile=${id}`,
    ...tls,
    context,
  );
  const image = readFileSync(id, "utf8").trim().replace("sha256:", "");
  const container = execFileSync("podman", ["create", image], { encoding: "utf8" }).trim();
  const node = join(scratch, "node");
  run("podman", "cp", `${container}:/usr/local/bin/node`, node);
  run("podman", "rm", container);
  const machine = readFileSync(node).readUInt16LE(18);
  if (machine !== machines[platform])
    fail(`the image for ${platform} has Node.js of another platform (ELF machine ${machine})`);
  return image;
}

/** @returns the digest of the chart */
function pushChart(image) {
  const chart = join(scratch, "espalier");
  cpSync(join(root, "deploy/helm/espalier"), chart, { recursive: true, dereference: true });
  const path = join(chart, "values.yaml");
  writeFileSync(path, readFileSync(path, "utf8").replace(/^( {2}repository: )espalier$/m, `$1${image}`));
  const helm = process.env.HELM ?? "helm";
  run(helm, "package", chart, "--destination", scratch);
  const flags = values.insecure ? ["--plain-http"] : [];
  const archive = join(scratch, `espalier-${version}.tgz`);
  // Helm prints the digest on standard error.
  const printed = execFileSync(
    "sh",
    ["-c", '"$@" 2>&1', "sh", helm, "push", archive, `oci://${registry}/charts`, ...flags],
    {
      encoding: "utf8",
    },
  );
  process.stdout.write(printed);
  return /Digest: (sha256:[0-9a-f]{64})/.exec(printed)?.[1] ?? fail("helm push printed no digest");
}

function run(command, ...args) {
  execFileSync(command, args, { cwd: root, stdio: "inherit" });
}

function fail(message) {
  throw new Error(message);
}

function output(fields) {
  const lines = Object.entries(fields).map(([name, value]) => `${name}=${value}\n`);
  process.stdout.write(lines.join(""));
  if (process.env.GITHUB_OUTPUT) appendFileSync(process.env.GITHUB_OUTPUT, lines.join(""));
}
