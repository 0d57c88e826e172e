import { describe, expect, test } from "vitest";
import { applyReload, changedPaths, describeConfig, isAppliedOnReload, loadConfig } from "../../src/config/index.ts";
import { load, problemsOf } from "./loading.ts";

const [first, second, third] = ["first-secret-of-the-mesh", "second-secret-of-the-mesh", "third-secret-of-the-mesh"];
const read = (mesh: string) => load(`mesh: { port: 0${mesh} }`);

const secretsOf = ({ mesh }: ReturnType<typeof load>) =>
  [mesh.secret, ...mesh.acceptedSecrets].map((secret) => secret?.reveal());

describe("accepted secrets", () => {
  test("stand behind the own one, each once", () => {
    const config = read(`, secret: ${first}, accepted-secrets: [${second}, ${first}, ${second}]`);
    expect(secretsOf(config)).toEqual([first, second]);
  });

  test("come from files", () => {
    const text = "mesh: { port: 0, secret: '${file:/new}', accepted-secrets: ['${file:/old}'] }";
    const readText = (path: string) => ({ "/new": `${first}\n`, "/old": `${second}\n` })[path] ?? "";
    expect(secretsOf(loadConfig({ file: { path: "f.yaml", text }, readText }))).toEqual([first, second]);
  });

  test.each([
    [`, accepted-secrets: [${second}]`, /^mesh\.secret: is required/],
    [`, secret: ${first}, accepted-secrets: [too-short]`, /^mesh\.accepted-secrets\[0\]/],
    [`, secret: ${first}, accepted-secrets: [${[1, 2, 3, 4].map((n) => `${second}-${n}`)}]`, /^mesh\.accepted-secrets/],
  ])("%s is refused, and not shown", (mesh, problem) => {
    const [found, ...others] = problemsOf(`mesh: { port: 0${mesh} }`);
    expect(others).toEqual([]);
    expect(found).toMatch(problem);
    expect(found).not.toMatch(/too-short|-of-the-mesh/);
  });

  test("three may be", () => {
    expect(
      secretsOf(read(`, secret: ${first}, accepted-secrets: [${second}, ${third}, a-fourth-secret-of-it]`)),
    ).toEqual([...[first, second, third], "a-fourth-secret-of-it"]);
  });
});

describe("a reload", () => {
  test("takes up secrets, and nothing else of the mesh", () => {
    const running = read(`, secret: ${first}, accepted-secrets: [${third}]`);
    const loaded = load(`mesh: { port: 1, cluster: other, secret: ${second}, accepted-secrets: [${first}] }`);
    expect(changedPaths(running, loaded)).toEqual([
      ...["mesh.accepted-secrets", "mesh.cluster", "mesh.port", "mesh.secret"],
    ]);
    const taken = applyReload(running, loaded);
    expect(secretsOf(taken)).toEqual([second, first]);
    expect(taken.mesh).toMatchObject({ port: 0, cluster: "default" });
    expect(changedPaths(taken, loaded)).toEqual(["mesh.cluster", "mesh.port"]);
    expect(describeConfig(taken)).toMatchObject({ mesh: { secret: "***", "accepted-secrets": ["***"], port: 0 } });
  });

  test.each([
    ["a first secret", "", `, secret: ${first}, accepted-secrets: [${second}]`],
    ["the end of all", `, secret: ${first}, accepted-secrets: [${second}]`, ""],
  ])("leaves %s for a restart: links stay as safe as they were", (_, before, after) => {
    const [running, loaded] = [read(before), read(after)];
    const taken = applyReload(running, loaded);
    expect(secretsOf(taken)).toEqual(secretsOf(running));
    expect(changedPaths(taken, loaded)).toEqual(["mesh.accepted-secrets", "mesh.secret"]);
    expect(isAppliedOnReload("mesh.secret", running, loaded)).toBe(false);
    expect(isAppliedOnReload("policy.name", running, loaded)).toBe(true);
    expect(describeConfig(taken)).toEqual(describeConfig(running));
  });
});
