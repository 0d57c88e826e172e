// The flags of sglang-router for `espalier_router.compat`, as JSON, from the table that `espalier migrate` translates by.
// Their types and defaults are those of its `add_cli_args`, as its package has them (sglang-router-args.json).
import { readFileSync } from "node:fs";
import { foreignRouters } from "../../apps/router/src/migrate/flags/foreign-routers.ts";

const { title, known } = foreignRouters()["sglang-router"];
const released = JSON.parse(readFileSync(new URL("sglang-router-args.json", import.meta.url), "utf8"));
const unknown = Object.keys(released).filter((flag) => !known.has(flag));
if (unknown.length > 0) throw new Error(`no flags of ${title}: ${unknown.join(", ")}`);
const flags = Object.fromEntries([...known].map(([flag, { values }]) => [flag, { values, ...released[flag] }]));
process.stdout.write(`${JSON.stringify({ version: title.split(" ").at(-1), flags }, null, 1)}\n`);
