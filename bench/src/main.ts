import { runCommand } from "./run-command.ts";

process.exitCode = await runCommand(process.argv.slice(2), {
  out: (text) => process.stdout.write(text),
  notes: (text) => process.stderr.write(text),
});
