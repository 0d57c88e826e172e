// cspell:ignore conections listn intervall wieght cret
import { EspalierError } from "@espalier/core";
import { expect, test } from "vitest";
import { type Environment, type FlagValues, loadConfig } from "../../src/config/index.ts";
import { load, problemsOf } from "./loading.ts";

test.each([
  ["listen: { port: 70000 }", "listen.port: 70000 is not an integer from 0 to 65535 (e.yaml:1:11)"],
  ["listen: { port: eighty }", 'listen.port: "eighty" is not an integer from 0 to 65535 (e.yaml:1:11)'],
  ["listen: { port: 80.5 }", "listen.port: 80.5 is not an integer from 0 to 65535 (e.yaml:1:11)"],
  ["listen: { port: .inf }", "listen.port: Infinity is not an integer from 0 to 65535 (e.yaml:1:11)"],
  ["listen: { port: [80] }", "listen.port: a list is not an integer from 0 to 65535 (e.yaml:1:11)"],
  [
    "listen: { host: 12 }",
    "listen.host: 12 is not a host name or an IP address; put it in quotes if it is meant as text (e.yaml:1:11)",
  ],
  ['listen: { host: "a b" }', 'listen.host: "a b" is not a host name or an IP address (e.yaml:1:11)'],
  ["inject-usage: yes", 'inject-usage: "yes" is not true or false (e.yaml:1:1)'],
  ["inject-usage: 1", "inject-usage: 1 is not true or false (e.yaml:1:1)"],
  ["drain: { delay: 5x }", 'drain.delay: "5x" is not a duration from 0ms to 10m (e.yaml:1:10)'],
  ["drain: { delay: -5s }", 'drain.delay: "-5s" is not a duration from 0ms to 10m (e.yaml:1:10)'],
  ["drain: { delay: -1 }", "drain.delay: -1 is not a duration from 0ms to 10m (e.yaml:1:10)"],
  ["drain: { delay: 5 s }", 'drain.delay: "5 s" is not a duration from 0ms to 10m (e.yaml:1:10)'],
  ["limits: { max-body-bytes: 3TB }", 'limits.max-body-bytes: "3TB" is not a size from 1KiB to 1GiB (e.yaml:1:11)'],
  ["limits: { max-body-bytes: 1024.5 }", "limits.max-body-bytes: 1024.5 is not a size from 1KiB to 1GiB (e.yaml:1:11)"],
  ["log: { level: loud }", 'log.level: "loud" is not one of debug, info, warn, error (e.yaml:1:8)'],
  ["policy: fastest", /^policy\.name: "fastest" is not one of .*least_connections.* \(e\.yaml:1:1\)$/],
  [
    "policy: least_conections",
    /^policy\.name: "least_conections" is not one of .*; did you mean least_connections\? \(e\.yaml:1:1\)$/,
  ],
  [
    "policy: { load-factor: 0.5, name: consistent_hashing }",
    "policy.load-factor: 0.5 is not 0, or a number from 1 to 1000 (e.yaml:1:11)",
  ],
  ["session-key: [cookie:a]", 'session-key[0]: "cookie:a" is not header:NAME, body:FIELD or prefix (e.yaml:1:15)'],
  ["session-key: ['body:a/']", 'session-key[0]: "body:a/" is not header:NAME, body:FIELD or prefix (e.yaml:1:15)'],
  [
    "session-key: ['header:a/b/c']",
    'session-key[0]: "header:a/b/c" is not header:NAME, body:FIELD or prefix (e.yaml:1:15)',
  ],
  [
    "session-key: ['header:a b']",
    'session-key[0]: "header:a b" is not header:NAME, body:FIELD or prefix (e.yaml:1:15)',
  ],
  [
    "forward-paths: [v1]",
    'forward-paths[0]: "v1" is not a path that starts with /, with at most one * at its end (e.yaml:1:17)',
  ],
  [
    "forward-paths: ['/a*b']",
    'forward-paths[0]: "/a*b" is not a path that starts with /, with at most one * at its end (e.yaml:1:17)',
  ],
  ["health: { path: 'a b' }", 'health.path: "a b" is not a path that starts with / (e.yaml:1:11)'],
  [
    "engines: [ftp://a]",
    'engines[0].url: "ftp://a" is not an http:// or https:// URL without credentials, query or fragment (e.yaml:1:11)',
  ],
  [
    "engines: [10.0.0.1]",
    'engines[0].url: "10.0.0.1" is not an http:// or https:// URL without credentials, query or fragment (e.yaml:1:11)',
  ],
  [
    "engines: ['http://a?b']",
    'engines[0].url: "http://a?b" is not an http:// or https:// URL without credentials, query or fragment (e.yaml:1:11)',
  ],
  ["engines: http://a", "engines: expected a list, found a plain text (e.yaml:1:1)"],
  [
    "engines: [5]",
    "engines[0]: expected a section with url, id, models, role, weight, region, ranks, first-rank, kv-events, kv-transfer, kv-pull, labels, found a number (e.yaml:1:11)",
  ],
  [
    "engines: [[]]",
    "engines[0]: expected a section with url, id, models, role, weight, region, ranks, first-rank, kv-events, kv-transfer, kv-pull, labels, found a list (e.yaml:1:11)",
  ],
  ["engines: [{ id: a }]", "engines[0].url: is required (e.yaml:1:11)"],
  ["engines: [~]", "engines[0].url: is required (e.yaml:1:11)"],
  ["models: { aliases: [a] }", "models.aliases: expected a section of names and values, found a list (e.yaml:1:11)"],
  [
    "models: { aliases: { 'a b': 1 } }",
    'models.aliases["a b"]: 1 is not text of 1 to 256 characters; put it in quotes if it is meant as text (e.yaml:1:22)',
  ],
  ["models: { splits: { a: [{ model: b }] } }", "models.splits.a[0].weight: is required (e.yaml:1:25)"],
  ["pools: [{}]", "pools[0].models: is required (e.yaml:1:9)"],
  ["tokenizers: [{}]", "tokenizers[0].path: is required because mode is local (e.yaml:1:14)"],
  ["tokenizers: [{ path: /a, mode: bytes }]", "tokenizers[0].path: is unused because mode is bytes (e.yaml:1:16)"],
  [
    'engines: [{ url: "http://a", kv-events: "tcp://*:1" }]',
    'engines[0].kv-events.endpoint: "tcp://*:1" is not tcp://HOST:PORT (e.yaml:1:30)',
  ],
  ["listen: { tls: { cert-file: /c } }", "listen.tls.key-file: is required (e.yaml:1:11)"],
  ["api-keys: [{ key: 12345678a }]", "api-keys[0].name: is required (e.yaml:1:12)"],
])("%s is refused with path, value, expectation and place", (text, expected) => {
  const problems = problemsOf(text);
  expect(problems).toHaveLength(1);
  expect(problems[0]).toEqual(typeof expected === "string" ? expected : expect.stringMatching(expected));
});

/*
 * Symptom: with `timeouts.answer: 30`, copied from a router that counts in seconds, every answer ended after 30 ms.
 * Mechanism: a duration without a unit was read as milliseconds, in silence.
 */
test.each<[{ readonly text?: string; readonly env?: Environment; readonly flags?: FlagValues }, string]>([
  [{ text: "timeouts: { answer: 30 }" }, "timeouts.answer: 30 has no unit; write 30s or 30ms (e.yaml:1:13)"],
  [{ text: 'timeouts: { answer: "1.5" }' }, 'timeouts.answer: "1.5" has no unit; write 1.5s or 1.5ms (e.yaml:1:13)'],
  [
    { flags: { "--timeouts-answer": "30" } },
    'timeouts.answer: "30" has no unit; write 30s or 30ms (--timeouts-answer)',
  ],
  [
    { env: { ESPALIER_TIMEOUTS_ANSWER: "30" } },
    'timeouts.answer: "30" has no unit; write 30s or 30ms (ESPALIER_TIMEOUTS_ANSWER)',
  ],
  [
    { text: `timeouts: { answer: "\${LIMIT}" }`, env: { LIMIT: "30" } },
    `timeouts.answer: \${LIMIT} has no unit; write \${LIMIT}s or \${LIMIT}ms (e.yaml:1:13)`,
  ],
  [
    { text: "discovery: { dns: [{ name: 'e:1', interval: 30 }] }" },
    "discovery.dns[0].interval: 30 has no unit; write 30s or 30ms (e.yaml:1:35)",
  ],
  [{ text: "timeouts: { answer: 0 }" }, "timeouts.answer: 0 is not a duration from 100ms to 24h (e.yaml:1:13)"],
])(
  "a duration without a unit in %j is refused, with the units that may be meant",
  ({ text = "", ...outside }, expected) => {
    expect(problemsOf(text, outside)).toEqual([expected]);
  },
);

test.each([
  ["listn: {}", "listn: is not a known key; did you mean listen? (e.yaml:1:1)"],
  [
    "admission: { classes: [{ name: a, patience: 5m }] }",
    "admission.classes[0].patience: is not a known key; renamed to max-cold-wait (e.yaml:1:35)",
  ],
  ["apiKeys: []", "apiKeys: is not a known key; did you mean api-keys? (e.yaml:1:1)"],
  ["api_keys: []", "api_keys: is not a known key; did you mean api-keys? (e.yaml:1:1)"],
  [
    "limits: { maxBodyBytes: 1 }",
    "limits.maxBodyBytes: is not a known key; did you mean max-body-bytes? (e.yaml:1:11)",
  ],
  ["health:\n  intervall: 1s", "health.intervall: is not a known key; did you mean interval? (e.yaml:2:3)"],
  [
    "engines: [{ url: http://a, wieght: 2 }]",
    "engines[0].wieght: is not a known key; did you mean weight? (e.yaml:1:28)",
  ],
  ["policy: { objective: e2e }", "policy.objective: is replaced by slo.tpot (e.yaml:1:11)"],
  [
    "pools: [{ models: [a], policy: { objective: ttft } }]",
    "pools[0].policy.objective: is replaced by slo.tpot (e.yaml:1:34)",
  ],
  ["slo: { tpot: 0s }", 'slo.tpot: "0s" is not none or a duration from 1ms to 24h (e.yaml:1:8)'],
  ["slo: { tpot: 50 }", "slo.tpot: 50 has no unit; write 50s or 50ms (e.yaml:1:8)"],
  ["slo: { ttft: never }", 'slo.ttft: "never" is not none or a duration from 1ms to 24h (e.yaml:1:8)'],
  ["log: { q: 1 }", "log.q: is not a known key; the keys here are level, format (e.yaml:1:8)"],
  ["log: { constructor: 1 }", "log.constructor: is not a known key; the keys here are level, format (e.yaml:1:8)"],
  ["log: { __proto__: 1 }", "log.__proto__: is not a known key; the keys here are level, format (e.yaml:1:8)"],
  ["log: { <<: { level: debug } }", 'log["<<"]: is not a known key; the keys here are level, format (e.yaml:1:8)'],
])("the unknown key in %s is refused, with the nearest known one", (text, expected) => {
  expect(problemsOf(text)).toEqual([expected]);
});

test("everything that is wrong is reported at once, a line each, with where it was written", () => {
  const text = `listen:
  port: 70000
  prot: 1
admin: { host: 0.0.0.0 }
engines:
  - http://a
  - url: nonsense
log: { level: "\${LEVEL}" }
`;
  const outside = { env: { ESPALIER_DRAIN_GRACE: "soon", ESPALIER_X: "1" }, flags: { "--health-interval": "never" } };
  expect(problemsOf(text, outside).map((line) => line.replace(/;.*$/, ""))).toEqual([
    "log.level: the environment variable LEVEL is not set (e.yaml:8:8)",
    "ESPALIER_X: is not a known environment variable",
    "listen.prot: is not a known key",
    "listen.port: 70000 is not an integer from 0 to 65535 (e.yaml:2:3)",
    'engines[1].url: "nonsense" is not an http:// or https:// URL without credentials, query or fragment (e.yaml:7:5)',
    'health.interval: "never" is not a duration from 100ms to 10m (--health-interval)',
    'drain.grace: "soon" is not a duration from 0ms to 24h (ESPALIER_DRAIN_GRACE)',
    "admin.key: is required because 0.0.0.0 is not a loopback address (e.yaml:4:1)",
  ]);
});

test("the error carries the stable code and the first path", () => {
  try {
    load("listen: { port: x, host: 5 }");
    expect.unreachable();
  } catch (error) {
    expect(error).toBeInstanceOf(EspalierError);
    expect(error).toMatchObject({ code: "config_invalid", param: "listen.host" });
  }
});

test("the hundred-and-first problem is only counted", () => {
  const statuses = (count: number) => `retry: { statuses: [${Array.from({ length: count }, () => 1).join(", ")}] }`;
  expect(problemsOf(statuses(100))).toHaveLength(100);
  const keys = Array.from({ length: 101 }, (_, at) => `key-${at}: 1`).join("\n");
  const lines = problemsOf(keys);
  expect(lines).toHaveLength(101);
  expect(lines[100]).toBe("and 1 more");
});

const secrets = [
  ["an admin key that is too short", "admin: { key: s3cret }"],
  ["an admin key that is a number", "admin: { key: 5333333333333 }"],
  ["an API key that is too long", `api-keys: [{ name: a, key: ${"s3cret".repeat(100)} }]`],
  ["a digest that is none", "api-keys: [{ name: a, key-sha256: s3cret }]"],
  ["an API key in place of its section", "api-keys: [s3cret-key]"],
  ["an API key in place of the list", "api-keys: s3cret-key"],
  ["an engine's key with a space", "pools: [{ models: [a], engine-api-key: 's3cret key' }]"],
  ["credentials in a URL", "engines: ['http://user:s3cret@host']"],
  ["credentials in a URL, escaped", "engines: ['http://s3cret%40x@host']"],
  ["a secret variable in the wrong place", `listen: { port: "\${KEY}" }`],
  ["a secret variable in a short form", `engines: ["ftp://\${KEY}"]`],
  ["a secret variable in the middle of a text", `log: { level: "a\${KEY}b" }`],
] as const;

test.each(secrets)("%s does not show in the message", (_, text) => {
  const problems = problemsOf(text, { env: { KEY: "s3cret" } });
  expect(problems).not.toEqual([]);
  expect(problems.join("\n")).not.toMatch(/s3cret|5333333333333/);
});

test("a long value is cut in the message", () => {
  const [problem = ""] = problemsOf(`log: { level: ${"x".repeat(10_000)} }`);
  expect(problem.length).toBeLessThan(200);
  expect(problem).toContain("xxx…");
});

test("a file that is no section is refused as a whole", () => {
  expect(problemsOf("- a")[0]).toMatch(/^expected a section with listen, .*, found a list$/);
  expect(problemsOf("just text")[0]).toMatch(/^expected a section with listen, .*, found a plain text$/);
});

test("a problem of one section does not hide the cross-checks of others", () => {
  expect(problemsOf("log: { level: x }\nmodels: { aliases: { a: a } }")).toEqual([
    'log.level: "x" is not one of debug, info, warn, error (e.yaml:1:8)',
    "models.aliases.a: is a cycle (e.yaml:2:22)",
  ]);
});

test("nothing is left behind on the prototypes of objects", () => {
  problemsOf('{"__proto__": {"listen": 1}, "models": {"aliases": {"__proto__": "x", "constructor": "y"}}}');
  expect(({} as Record<string, unknown>).listen).toBeUndefined();
  const { models } = load('{"models": {"aliases": {"__proto__": "x", "constructor": "y"}}}');
  expect(Object.entries(models.aliases)).toEqual([
    ["__proto__", "x"],
    ["constructor", "y"],
  ]);
  expect(Object.getPrototypeOf(loadConfig({}).models.aliases)).toBe(Object.prototype);
});

test.each(["https://a/", "https://A", "a.example.com", "https://*.a", "null"])("%s is no origin", (origin) => {
  const expected = "an origin in lower case, such as https://chat.example.com, or *";
  expect(problemsOf(`cors: { origins: ["${origin}"] }`)).toEqual([
    `cors.origins[0]: ${JSON.stringify(origin)} is not ${expected} (e.yaml:1:19)`,
  ]);
});
