/**
 * What a page of the dashboard may load and talk to: its own listener, and those of the other routers, to which it goes
 * on when its own is gone.
 *
 * @param origins as `readOrigin` returns them
 */
export function contentPolicy(origins: readonly string[]): string {
  const others = origins.flatMap((origin) => [origin, origin.replace(/^http/, "ws")]);
  return [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    ["connect-src 'self'", ...others].join(" "),
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join("; ");
}
