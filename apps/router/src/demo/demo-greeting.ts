import type { RouterListening } from "../local-fleet/local-fleet.ts";

export interface DemoFleet {
  readonly routers: readonly [RouterListening, ...RouterListening[]];
  readonly engineUrls: readonly string[];
  /** What the engines are, in words. */
  readonly engines: string;
  readonly policy: string;
  readonly model: string;
}

/** Where everything listens, and lines to paste into a shell. */
export function describeDemo({ routers, engineUrls, engines, policy, model }: DemoFleet): string {
  const [{ url, adminUrl }] = routers;
  const messages = `[{"role": "user", "content": "What is an espalier?"}]`;
  const body = `{"model": ${JSON.stringify(model)}, "stream": true, "max_tokens": 40, "messages": ${messages}}`;
  return [
    ...routers.map((router) => `router    ${router.url}   metrics ${router.adminUrl}/metrics`),
    `engines   ${engineUrls.join(" ")}`,
    `          ${engines}, policy ${policy}`,
    "",
    "Try:",
    `  curl -N ${url}/v1/chat/completions -H 'content-type: application/json' \\`,
    `    -d ${quoteForShell(body)}`,
    `  npx espalier workers --admin ${adminUrl}`,
    "",
    "Ctrl-C ends everything.",
  ].join("\n");
}

/** One word of a POSIX shell. */
function quoteForShell(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
