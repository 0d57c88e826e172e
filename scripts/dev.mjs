// `npm run dev -- serve ...`: any `espalier` command, started again whenever one of its sources changes.
import { spawn } from "node:child_process";
import { join } from "node:path";
import { passSignals, root, setUp } from "./set-up.mjs";

const usage = `usage: npm run dev -- COMMAND [ARGUMENTS]

Runs \`espalier COMMAND\` from its sources, and again whenever one of them changes. A router is killed rather than drained.
With --inspect before the command, a debugger can connect.`;

const args = process.argv.slice(2);
if (args.length === 0 || args[0] === "--help") {
  console.log(usage);
  process.exit(args.length === 0 ? 2 : 0);
}
await setUp();
const flags = [];
while (args[0]?.startsWith("--inspect")) flags.push(args.shift());
const watch = ["--watch", "--watch-preserve-output", "--watch-kill-signal=SIGKILL"];
const program = join(root, "apps", "router", "bin", "espalier.mjs");
const child = spawn(process.execPath, [...watch, ...flags, program, ...args], {
  stdio: "inherit",
  env: { ...process.env, ESPALIER_SKIP_BUILD: "1" },
});
passSignals(child);
child.on("exit", (code) => process.exit(code ?? 1));
