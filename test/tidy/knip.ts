import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";

/** Of what programs are made, without their tests. */
export const productionFlags = ["--production", "--strict", "--include", "files,dependencies,unlisted,unresolved"];

const knip = fileURLToPath(new URL("../../node_modules/knip/bin/knip.js", import.meta.url));

/** What knip finds in a folder with its knip.json: nothing for a folder that is in order. */
export function runKnip(root: string, flags: readonly string[]): Promise<string> {
  const always = ["--no-progress", "--cache", "--treat-config-hints-as-errors"];
  return new Promise((resolve) => {
    execFile(process.execPath, [knip, ...always, ...flags], { cwd: root }, (error, stdout, stderr) => {
      resolve(`${stdout}${stderr}`.trim() || (error?.message ?? ""));
    });
  });
}
