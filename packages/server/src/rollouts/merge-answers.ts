import { isJsonObject } from "@espalier/core";

/** What one engine answered to a control call. */
export interface EngineAnswer {
  readonly engine: string;
  readonly url: string;
  /** Null without an answer. */
  readonly status: number | null;
  /** Why the call failed there; null when it succeeded. */
  readonly error: string | null;
  /** The engine's JSON, or its text. */
  readonly body: unknown;
}

/** Numbers of which callers want the sum over the engines. */
const summed: ReadonlySet<string> = new Set(["world_size", "num_paused_requests", "aborted"]);

/**
 * One answer for those of all engines: what all of them say alike stays a field of it, `loads` of SGLang are joined, and
 * `workers` says what each one answered, under the names of the prime-rl router.
 */
export function mergeAnswers(answers: readonly EngineAnswer[]): Readonly<Record<string, unknown>> {
  const failed = answers.filter(({ error }) => error !== null);
  const success = failed.length === 0;
  const common = success ? commonFields(answers.map(({ body }) => body)) : {};
  const names = failed.map(({ engine }) => engine).join(", ");
  const message = success ? `Done by ${answers.length} engines.` : `Failed at ${names}.`;
  return {
    ...(success && { status: "ok", message }),
    ...common,
    success,
    ...(!success && { error: { message, type: "server_error", param: null, code: "control_call_failed" } }),
    workers: answers,
  };
}

function commonFields(bodies: readonly unknown[]): Readonly<Record<string, unknown>> {
  const [first, ...others] = bodies;
  if (!bodies.every(isJsonObject) || !isJsonObject(first)) return {};
  const rest = others as readonly Readonly<Record<string, unknown>>[];
  const fields: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(first)) {
    const values = [value, ...rest.map((body) => body[name])];
    if (summed.has(name) && values.every((one) => typeof one === "number")) {
      fields[name] = values.reduce((sum, one) => sum + one, 0);
    } else if (name === "loads" && values.every((one) => Array.isArray(one))) fields[name] = values.flat();
    else if (values.every((one) => JSON.stringify(one) === JSON.stringify(value))) fields[name] = value;
  }
  return fields;
}
