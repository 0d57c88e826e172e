import { expect, test } from "vitest";
import { loadConfig } from "../../src/config/index.ts";
import { load, problemsOf } from "./loading.ts";

const headersOf = (written: string): Readonly<Record<string, string>> => {
  const { headers } = load(`tracing: { headers: ${JSON.stringify(written)} }`).tracing;
  return Object.fromEntries(Object.entries(headers).map(([name, secret]) => [name, secret.reveal()]));
};

test.each<readonly [string, Readonly<Record<string, string>>]>([
  ["authorization=Bearer%20t", { authorization: "Bearer t" }],
  ["X-A=1, x-b = 2 ,", { "x-a": "1", "x-b": "2" }],
  ["x-a=a=b", { "x-a": "a=b" }],
  ["x-a=", { "x-a": "" }],
  ["x-a=%2C%25", { "x-a": ",%" }],
])("headers for the collector are read from %j", (written, expected) => {
  expect(headersOf(written)).toEqual(expected);
});

test.each(["no-value", "=v", "a b=c", "x-a=%zz", "x-a=%0d%0ax-b: c", "x-a=%c3%a4"])(
  "headers for the collector that are none are refused, and not shown: %j",
  (written) => {
    const [problem, ...others] = problemsOf(`tracing: { headers: ${JSON.stringify(written)} }`);
    expect(others).toEqual([]);
    expect(problem).toMatch(/^tracing\.headers: must be name=value pairs/);
    expect(problem).not.toContain(`"${written}"`);
  },
);

test.each(["collector:4318", "ftp://a", "http://user:pw@a", "http://a/?key=1", "http://a/#x", "http:// a"])(
  "%j is no collector",
  (endpoint) => {
    expect(problemsOf(`tracing: { endpoint: ${JSON.stringify(endpoint)} }`)).toEqual([
      expect.stringContaining("tracing.endpoint"),
    ]);
  },
);

const standard = {
  OTEL_EXPORTER_OTLP_ENDPOINT: "http://standard:4318",
  OTEL_EXPORTER_OTLP_HEADERS: "x-a=1",
  OTEL_SERVICE_NAME: "standard",
};

test("the standard's variables count where nothing else says it", () => {
  const { endpoint, headers, serviceName } = loadConfig({ env: standard }).tracing;
  expect([endpoint, headers["x-a"]?.reveal(), serviceName]).toEqual(["http://standard:4318", "1", "standard"]);
});

test.each<readonly [string, Parameters<typeof loadConfig>[0]]>([
  ["a flag", { flags: { "--tracing-endpoint": "http://own:1", "--tracing-service-name": "own" } }],
  ["our own variables", { env: { ESPALIER_TRACING_ENDPOINT: "http://own:1", ESPALIER_TRACING_SERVICE_NAME: "own" } }],
  [
    "the file",
    { file: { path: "f.yaml", text: "tracing: { endpoint: 'http://own:1', service-name: own, headers: null }" } },
  ],
])("%s counts before the standard's variables", (_, sources) => {
  const { tracing } = loadConfig({ ...sources, env: { ...standard, ...sources.env } });
  expect([tracing.endpoint, tracing.serviceName]).toEqual(["http://own:1", "own"]);
  expect(Object.keys(tracing.headers)).toEqual(["x-a"]);
});

test("an empty variable of the standard counts as unset, and a wrong one is named", () => {
  expect(loadConfig({ env: { OTEL_EXPORTER_OTLP_ENDPOINT: "" } }).tracing.endpoint).toBeUndefined();
  expect(() => loadConfig({ env: { OTEL_EXPORTER_OTLP_ENDPOINT: "collector:4317" } })).toThrow(
    /tracing\.endpoint.*OTEL_EXPORTER_OTLP_ENDPOINT/,
  );
});

test("a section that is none is what is reported, whatever the environment says", () => {
  expect(() => loadConfig({ env: standard, file: { path: "f.yaml", text: "tracing: 7" } })).toThrow(/tracing/);
});
