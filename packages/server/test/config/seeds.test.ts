import { expect, test } from "vitest";
import { parseSeedsFile } from "../../src/config/index.ts";
import { load, problemsIn, problemsOf } from "./loading.ts";

test("names of SRV records stand apart from hosts, each once", () => {
  const { seeds, seedRecords } = load(
    'mesh: { seeds: ["a:1", _mesh._tcp.routers.example, "_a:1", "[fd00::1]:7946", _mesh._tcp.routers.example] }',
  ).mesh;
  expect(seeds).toEqual(["a:1", "_a:1", "[fd00::1]:7946"]);
  expect(seedRecords).toEqual(["_mesh._tcp.routers.example"]);
});

test.each([
  ["ai/peers:mesh", { namespace: "ai", service: "peers", port: "mesh" }],
  ["peers:7946", { namespace: undefined, service: "peers", port: 7_946 }],
  ["peers", { namespace: undefined, service: "peers", port: undefined }],
])("the service %s of routers", (written, expected) => {
  expect(load(`mesh: { seed-services: ["${written}"] }`).mesh.seedServices).toEqual([expected]);
});

test("pods of routers by number or name of a port", () => {
  const { seedPods } = load(
    "mesh: { seed-pods: [{ selector: a, port: 7946 }, { selector: a, namespace: ai, port-name: mesh }] }",
  ).mesh;
  expect(seedPods).toEqual([
    { namespace: undefined, selector: "a", port: 7_946 },
    { namespace: "ai", selector: "a", port: "mesh" },
  ]);
});

test.each(["seeds: [_mesh._tcp.a]", "seeds-file: /s", "seed-services: [a]", "seed-pods: [{ selector: a, port: 1 }]"])(
  "with %s routers link with each other, and with Redis as well it has to be said",
  (mesh) => {
    expect(load(`mesh: { ${mesh} }`).mesh.backend).toBe("peers");
    expect(problemsOf(`mesh: { ${mesh}, redis-url: "redis://a" }`)).toEqual([
      expect.stringMatching(/^mesh\.backend: must be peers or redis/),
    ]);
    expect(load(`mesh: { ${mesh}, backend: redis, redis-url: "redis://a" }`).mesh.backend).toBe("redis");
  },
);

test.each([
  ['seeds: ["a"]', 'mesh.seeds[0]: "a" is not HOST:PORT or _SERVICE._PROTOCOL.HOST'],
  ['seeds: ["a:1", "b:0"]', "mesh.seeds[1]: 0 is not a port from 1 to 65535"],
  ['seeds: ["[::1]:65536"]', "mesh.seeds[0]: 65536 is not a port from 1 to 65535"],
  ['seeds: ["_mesh._tcp"]', "mesh.seeds[0]"],
  ['seed-servers: ["300.0.0.1"]', 'mesh.seed-servers[0]: "300.0.0.1" is not an IP address'],
  ['seed-services: ["peers:0"]', "mesh.seed-services[0]: 0 is not a port"],
  ["seed-services: [a, b, a]", "mesh.seed-services[2]: is the same as element 0"],
  ["seed-pods: [{ selector: a }]", "mesh.seed-pods[0]: needs either port or port-name"],
  ["seed-pods: [{ selector: a, port: 1 }, { selector: a, port: 2 }]", "mesh.seed-pods[1]: is the same as element 0"],
])("%s is refused", (mesh, expected) => {
  const problems = problemsOf(`mesh: { ${mesh} }`);
  expect(problems).toHaveLength(1);
  expect(problems[0]).toContain(expected);
});

test.each([
  ["a list", '["r1.example:7946", "10.0.0.2:7946", "[fd00::3]:7946"]'],
  ["a section", '{ seeds: ["r1.example:7946", "10.0.0.2:7946", "[fd00::3]:7946"] }'],
  ["YAML", "# routers\n- r1.example:7946\n- 10.0.0.2:7946\n- '[fd00::3]:7946'\n"],
])("a file of seeds as %s", (_, text) => {
  expect(parseSeedsFile(text, "s.yaml")).toEqual(["r1.example:7946", "10.0.0.2:7946", "[fd00::3]:7946"]);
});

test("a file may hold no seeds", () => {
  expect(parseSeedsFile("[]", "s.yaml")).toEqual([]);
  expect(parseSeedsFile("seeds: []", "s.yaml")).toEqual([]);
});

test.each([
  ["- a:1\n- a:0\n", "[1]: 0 is not a port from 1 to 65535 (s.yaml:2:3)"],
  ["- a\n", '[0]: "a" is not HOST:PORT (s.yaml:1:3)'],
  ["- _mesh._tcp.a\n", '[0]: "_mesh._tcp.a" is not HOST:PORT (s.yaml:1:3)'],
  ["seeds: 7\n", "seeds: expected a list"],
  ["other: []\n", "expected a list"],
  ["- [", "s.yaml"],
])("the file %j is refused", (text, expected) => {
  expect(problemsIn(() => parseSeedsFile(text, "s.yaml")).join("\n")).toContain(expected);
});

test("256 seeds in a file are read, one more is refused", () => {
  const list = (count: number) => JSON.stringify(Array.from({ length: count }, (_, at) => `r${at}:1`));
  expect(parseSeedsFile(list(256), "s")).toHaveLength(256);
  expect(() => parseSeedsFile(list(257), "s")).toThrow("more than 256");
});

test.each([
  ["https://admin.example", "https://admin.example"],
  ["https://Admin.Example:443", "https://admin.example"],
  ["http://admin.example:9091", "http://admin.example:9091"],
  ["http://[FD00::1]:9090", "http://[fd00::1]:9090"],
])("browsers reach the admin listener at %s", (advertise, expected) => {
  expect(load(`admin: { key: an-admin-key, advertise: "${advertise}" }`).admin.advertise).toBe(expected);
});

test("a URL of this machine for browsers needs no admin key, another one does", () => {
  expect(load("admin: { advertise: 'http://localhost:9091' }").admin.advertise).toBe("http://localhost:9091");
  expect(problemsOf("admin: { advertise: 'https://admin.example' }")).toEqual([
    expect.stringMatching(/^admin\.key: is required because admin\.example is not a loopback address/),
  ]);
});

test.each(["https://a/path", "ftp://a", "https://user@a", "a:9090", "https://a:65536", "https://a?x"])(
  "%s is no URL for browsers",
  (advertise) => {
    const problems = problemsOf(`admin: { key: an-admin-key, advertise: "${advertise}" }`);
    expect(problems).toHaveLength(1);
    expect(problems[0]).toMatch(/^admin\.advertise: "/);
  },
);
