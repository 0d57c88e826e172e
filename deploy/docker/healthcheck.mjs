// Whether the router of this container answers: exit code 0 or 1. ESPALIER_ADMIN_URL where the admin listener is elsewhere.
const { ESPALIER_ADMIN_URL: url, ESPALIER_ADMIN_PORT: port } = process.env;
const timeoutMs = 3_000;

try {
  const response = await fetch(new URL("/livez", url || `http://127.0.0.1:${port || 9090}`), {
    signal: AbortSignal.timeout(timeoutMs),
  });
  process.exitCode = response.ok ? 0 : 1;
} catch {
  process.exitCode = 1;
}
