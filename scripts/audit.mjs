// `npm run audit`: known weaknesses of the libraries that the router runs with. Fails on high and critical ones; where no
// registry answers it says so, and that is no failure.
import { spawnSync } from "node:child_process";
import { root } from "./set-up.mjs";

const timeoutMs = 120_000;

const { stdout, error } = spawnSync("npm", ["audit", "--omit=dev", "--json"], {
  cwd: root,
  encoding: "utf8",
  timeout: timeoutMs,
  maxBuffer: 64 * 1024 * 1024,
});
const report = parsed(stdout ?? "");
const counts = report?.metadata?.vulnerabilities;
if (counts === undefined) {
  const reason = error?.message || report?.message || report?.error?.summary || report?.error?.code || "no report";
  console.log(`NOT RUN: audit of dependencies, since the registry gave none (${String(reason).split("\n", 1)[0]})`);
  process.exit(0);
}
for (const [name, { severity, range, via }] of Object.entries(report.vulnerabilities ?? {})) {
  const titles = via.map((one) => (typeof one === "string" ? one : one.title)).join("; ");
  console.log(`${severity}: ${name} ${range}: ${titles}`);
}
const grave = counts.high + counts.critical;
console.log(`audit of dependencies: ${counts.total} known weaknesses, ${grave} of them high or critical`);
process.exit(grave === 0 ? 0 : 1);

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
