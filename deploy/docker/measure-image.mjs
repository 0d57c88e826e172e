// `node deploy/docker/measure-image.mjs IMAGE`: the size of an image that Podman has, and the time until `espalier serve` is
// ready in a container of it, over five starts with one engine, with no more rights than Kubernetes' profile `restricted` gives. Prints JSON.
import { execFileSync } from "node:child_process";
import { createServer as createHttpServer } from "node:http";
import { createServer } from "node:net";
import { setTimeout } from "node:timers/promises";
import { createGzip } from "node:zlib";

const [image] = process.argv.slice(2);
const starts = 5;
const deadlineMs = 60_000;
/** Between two requests for readiness. */
const pollMs = 10;
const restricted = ["--cap-drop=all", "--security-opt=no-new-privileges", "--read-only", "--read-only-tmpfs=false"];

if (image === undefined) {
  process.stderr.write("usage: measure-image.mjs IMAGE\n");
  process.exit(2);
}
const podman = (...args) => execFileSync("podman", args, { encoding: "utf8", maxBuffer: 2 ** 30 }).trim();
/** An engine as far as readiness needs one. */
const engine = createHttpServer((_, response) => response.end('{"object":"list","data":[{"id":"tiny"}]}'));
await new Promise((resolve) => engine.listen(0, "127.0.0.1", resolve));
const engineUrl = `http://127.0.0.1:${engine.address().port}`;
const runs = [];
for (let run = 0; run < starts; run++) runs.push(await startOnce());
engine.close();
const bytes = Number(podman("image", "inspect", "--format={{.Size}}", image));
const compressedBytes = await gzippedBytes(execFileSync("podman", ["save", image], { maxBuffer: 2 ** 31 - 1 }));
const sorted = (name) => runs.map((run) => run[name]).sort((a, b) => a - b);
process.stdout.write(
  `${JSON.stringify({ image, bytes, compressedBytes, readyMs: sorted("readyMs"), ofProcessMs: sorted("ofProcessMs") })}\n`,
);

/** @returns milliseconds from `podman run` to readiness, and from the start of the container's process */
async function startOnce() {
  const [port, adminPort] = [await freePort(), await freePort()];
  const begun = Date.now();
  const flags = ["--detach", "--rm", "--network=host", "--health-interval=disable", ...restricted];
  const serve = ["serve", "--engine", engineUrl, "--listen-port", port, "--admin-port", adminPort];
  const container = podman("run", ...flags, image, ...serve);
  try {
    const ready = await untilReady(`http://127.0.0.1:${port}/readyz`, begun + deadlineMs);
    const started = Date.parse(podman("inspect", "--format={{json .State.StartedAt}}", container).slice(1, -1));
    return { readyMs: ready - begun, ofProcessMs: ready - started };
  } finally {
    podman("stop", "--time=0", container);
  }
}

async function untilReady(url, deadline) {
  while (Date.now() < deadline) {
    const response = await fetch(url).catch(() => undefined);
    if (response?.ok) return Date.now();
    await setTimeout(pollMs);
  }
  throw new Error(`not ready within ${deadlineMs} ms`);
}

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return String(port);
}

async function gzippedBytes(archive) {
  let size = 0;
  const gzip = createGzip();
  gzip.end(archive);
  for await (const chunk of gzip) size += chunk.length;
  return size;
}
