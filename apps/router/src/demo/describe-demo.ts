import type { EnvoyListening } from "../envoy/start-envoy.ts";
import type { RouterListening } from "../processes/start-child.ts";
import type { Sharing } from "../processes/start-routers.ts";

export interface DemoFleet {
  readonly routers: readonly [RouterListening, ...RouterListening[]];
  readonly engineUrls: readonly string[];
  /** Describes the engines in words. */
  readonly engines: string;
  readonly policy: string;
  readonly sharing: Sharing;
  readonly model: string;
  /** Chat requests that the demo sends; 0 for none. */
  readonly requestsPerSecond: number;
  /** The gateway before the routers, if there is one. */
  readonly envoy?: EnvoyListening | undefined;
}

const shared: Readonly<Record<Sharing, string>> = {
  mesh: "routers share cache and load state",
  none: "routers share nothing",
};

/** Several blocks of tokens long: a cache cannot hold anything of a prompt shorter than two blocks. */
export const demoQuestion =
  "What is an espalier, how is a tree trained against a wall, which kinds of fruit take to it best, and in which month " +
  "should the branches be tied, so that the sun reaches every one of them and the harvest is early? Answer as a gardener " +
  "would who has kept one for many years beside a small house.";

/** Where everything listens, and lines to paste into a shell. */
export function describeDemo(fleet: DemoFleet): string {
  const { routers, engineUrls, engines, policy, sharing, model, requestsPerSecond, envoy } = fleet;
  const [{ url, adminUrl }, next] = routers;
  const messages = JSON.stringify([{ role: "user", content: demoQuestion }]);
  const body = `{"model": ${JSON.stringify(model)}, "stream": true, "max_tokens": 40, "messages": ${messages}}`;
  return [
    ...(envoy
      ? [
          `envoy     ${envoy.url}   admin ${envoy.adminUrl}`,
          "          asks the routers for the engine of each request",
        ]
      : []),
    ...routers.map((router) => `router    ${router.url}   metrics ${router.adminUrl}/metrics`),
    ...(routers.length === 1 ? [] : [`          ${shared[sharing]}`]),
    `dashboard ${adminUrl}/dashboard/`,
    `engines   ${engineUrls.join(" ")}`,
    `          ${engines}, policy ${policy}`,
    requestsPerSecond === 0
      ? "load      none; --load 8 sends 8 chat requests per second"
      : `load      ${requestsPerSecond} chat requests per second; --load 0 sends none`,
    "",
    "Try:",
    `  npx espalier try --admin ${adminUrl}`,
    ...(next && sharing === "mesh" ? ["sends two turns to two routers: both should reach one engine"] : []),
    `  curl -N ${envoy?.url ?? url}/v1/chat/completions -H 'content-type: application/json' \\`,
    `    -d ${quoteForShell(body)}`,
    ...(next && sharing === "mesh"
      ? [
          envoy
            ? "through either router, the prompt goes to the engine that caches it, unless that is busier than others"
            : `repeat at ${next.url}: every router finds the engine that caches the prompt, unless that is busier than others`,
        ]
      : []),
    `  npx espalier top --admin ${adminUrl}`,
    `  npx espalier engines --admin ${adminUrl}`,
    `  npx espalier status --admin ${adminUrl}`,
    "",
    "Ctrl-C stops everything.",
  ].join("\n");
}

/** One word of a POSIX shell. */
function quoteForShell(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
