// The flags of sglang-router for `espalier_router.compat`, as JSON, from the table that `espalier migrate` translates by.
import { foreignRouters } from "../../apps/router/src/migrate/flags/foreign-routers.ts";

const { title, known, policy, unset } = foreignRouters()["sglang-router"];
const defaults = { [policy.flag]: policy.default };
// Of their defaults, those that programs read: where the router is.
for (const { flag, value } of unset) if (flag === "--host" || flag === "--port") defaults[flag] = value;
const flags = Object.fromEntries([...known].map(([flag, { values }]) => [flag, values]));
process.stdout.write(`${JSON.stringify({ version: title.split(" ").at(-1), flags, defaults }, null, 1)}\n`);
