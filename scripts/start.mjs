// `npm start`: `espalier demo`, from the sources.
import { setUp } from "./set-up.mjs";

const watchMs = 500;

// A signal to npm ends npm and its shell, and does not reach what the shell runs.
if (process.env.npm_lifecycle_event === "start") {
  const shell = process.ppid;
  const watch = setInterval(() => {
    if (process.ppid === shell) return;
    clearInterval(watch);
    process.kill(process.pid, "SIGTERM");
  }, watchMs);
  watch.unref();
}

await setUp();
process.argv.splice(2, 0, "demo");
await import("../apps/router/bin/espalier.mjs");
