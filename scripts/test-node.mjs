// `npm run test:node -- RELEASE`: the tests in another release of Node, which npm brings.
import { spawnSync } from "node:child_process";
import { delimiter, join } from "node:path";
import { installNode } from "./node-release.mjs";
import { root, setUp } from "./set-up.mjs";

const usage = `usage: npm run test:node -- RELEASE [--runtime | FILE...]

Runs the unit tests of every package and the integration suites of \`npm test\` in the newest Node of a release, such as 24, or in
one version of it. npm brings it, once, into .cache.

  --runtime  what a release of Node may change: packages that use sockets, threads, native code, shared memory or Unicode, and
             the integration suites; what CI runs
  FILE...    those test files alone, at full depth
  --help     this text

Exit codes: 0 all passed, 1 some failed, 2 it was called wrongly or there is no such release.`;

const [release, ...selection] = process.argv.slice(2);
if (release === "--help" || release === undefined) {
  console.log(usage);
  process.exit(release === undefined ? 2 : 0);
}
await setUp();
const { program, bin } = findNode();
const chosen = selection.length === 0 ? ["--tests"] : selection;
const { status } = spawnSync(program, [join(root, "scripts", "test.mjs"), ...chosen], {
  cwd: root,
  env: { ...process.env, PATH: `${bin}${delimiter}${process.env.PATH}` },
  stdio: "inherit",
});
process.exit(status ?? 1);

function findNode() {
  try {
    return installNode(release);
  } catch (error) {
    console.error(`error: ${error.message}`);
    return process.exit(2);
  }
}
