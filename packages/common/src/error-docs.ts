import { errorCatalogue } from "./error-catalogue.ts";

/** The text of `docs/ERRORS.md`, made from the catalogue so that the two cannot differ. */
export function renderErrorDocs(): string {
  const entries = Object.entries(errorCatalogue);
  const answered = entries.filter(([, kind]) => kind.status !== 0);
  const local = entries.filter(([, kind]) => kind.status === 0);
  return [
    "# Errors",
    "",
    "Generated from the error catalogue by `npm run docs`. Every error that the router makes itself has a stable code.",
    "Errors of an engine pass through unchanged.",
    "",
    "## Answers to clients",
    "",
    'The body is `{"error": {"message", "type", "param", "code"}}`; on `/v1/messages` it has Anthropic\'s shape. A retryable',
    "429 or 503 carries `Retry-After`. Once an answer has begun, an error comes as a last stream frame",
    '`data: {"error": ...}` without `[DONE]`.',
    "",
    "| code | status | type | retryable | meaning | what to do |",
    "|---|---|---|---|---|---|",
    ...answered.map(
      ([code, kind]) =>
        `| \`${code}\` | ${kind.status} | \`${kind.type}\` | ${kind.retryable ? "yes" : "no"} | ${kind.meaning} | ${kind.action} |`,
    ),
    "",
    "## Errors of the command",
    "",
    "The command prints these on standard error and exits with 1, or with 2 when it was called wrongly.",
    "",
    "| code | meaning | what to do |",
    "|---|---|---|",
    ...local.map(([code, kind]) => `| \`${code}\` | ${kind.meaning} | ${kind.action} |`),
    "",
  ].join("\n");
}
