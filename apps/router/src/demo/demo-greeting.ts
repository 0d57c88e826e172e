import type { RouterListening } from "../local-fleet/local-fleet.ts";
import type { Sharing } from "../local-fleet/start-routers.ts";

export interface DemoFleet {
  readonly routers: readonly [RouterListening, ...RouterListening[]];
  readonly engineUrls: readonly string[];
  /** What the engines are, in words. */
  readonly engines: string;
  readonly policy: string;
  readonly sharing: Sharing;
  readonly model: string;
}

const shared: Readonly<Record<Sharing, string>> = {
  mesh: "they share what the engines hold and how loaded they are",
  none: "they share nothing",
};

/** Some blocks of tokens long: a prompt of less than two has nothing that a cache could hold. */
export const demoQuestion =
  "What is an espalier, how is a tree trained against a wall, which kinds of fruit take to it best, and in which month " +
  "should the branches be tied, so that the sun reaches every one of them and the harvest is early? Answer as a gardener " +
  "would who has kept one for many years beside a small house.";

/** Where everything listens, and lines to paste into a shell. */
export function describeDemo({ routers, engineUrls, engines, policy, sharing, model }: DemoFleet): string {
  const [{ url, adminUrl }, next] = routers;
  const messages = JSON.stringify([{ role: "user", content: demoQuestion }]);
  const body = `{"model": ${JSON.stringify(model)}, "stream": true, "max_tokens": 40, "messages": ${messages}}`;
  return [
    ...routers.map((router) => `router    ${router.url}   metrics ${router.adminUrl}/metrics`),
    ...(routers.length === 1 ? [] : [`          ${shared[sharing]}`]),
    `dashboard ${adminUrl}/dashboard/`,
    `engines   ${engineUrls.join(" ")}`,
    `          ${engines}, policy ${policy}`,
    "",
    "Try:",
    `  curl -N ${url}/v1/chat/completions -H 'content-type: application/json' \\`,
    `    -d ${quoteForShell(body)}`,
    ...(next && sharing === "mesh"
      ? [`the same at ${next.url}: whichever router is asked, the prompt goes to the engine that has it`]
      : []),
    `  npx espalier workers --admin ${adminUrl}`,
    `  npx espalier status --admin ${adminUrl}`,
    "",
    "Ctrl-C ends everything.",
  ].join("\n");
}

/** One word of a POSIX shell. */
function quoteForShell(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
