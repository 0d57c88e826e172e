import { resolve } from "node:path";
import { describe, expect, test } from "vitest";
import { loadConfig } from "../../src/config/load-config.ts";

const at = (path: string, text: string, more: Partial<Parameters<typeof loadConfig>[0]> = {}) =>
  loadConfig({ file: { path, text }, ...more });

describe("a relative path", () => {
  /** Every setting that is a path. */
  const text = `
engines-file: engines.yaml
engine-tls: { ca-file: ca.pem, cert-file: cert.pem, key-file: key.pem }
listen: { tls: { cert-file: ../cert.pem, key-file: key.pem, ca-file: ./ca.pem } }
admin: { tls: { cert-file: cert.pem, key-file: key.pem, ca-file: ca.pem } }
endpoint-picker: { tls: { cert-file: cert.pem, key-file: key.pem, ca-file: ca.pem } }
scale: { port: 9004, tls: { cert-file: cert.pem, key-file: key.pem, ca-file: ca.pem } }
discovery: { kubernetes: { api-server: "https://k:6443", token-file: token, ca-file: ca.pem } }
mesh: { seeds-file: seeds.yaml, tls: { cert-file: cert.pem, key-file: key.pem, ca-file: ca.pem } }
tokenizers: [{ models: ["*"], path: models/qwen }]
plugins: [policies.mjs, /opt/others.mjs]
`;

  test("of the file starts at its folder, wherever the router is started", () => {
    const { effective } = at("/etc/espalier/espalier.yaml", text);
    const paths = JSON.stringify(effective).match(/"[^"]*(?:\.pem|\.yaml|\.mjs|qwen|\btoken)"/g) ?? [];
    expect(paths).toHaveLength(25);
    expect(paths.filter((path) => !/^"\/(?:etc|opt)\//.test(path))).toEqual([]);
    expect(effective.listen.tls?.["cert-file"]).toBe("/etc/cert.pem");
    expect(effective.plugins).toEqual(["/etc/espalier/policies.mjs", "/opt/others.mjs"]);
    expect(at("deploy/e.yaml", text).enginesFile).toBe(resolve("deploy/engines.yaml"));
  });

  test("of a flag or a variable starts at the current folder, whatever the file says", () => {
    const flags = { "--engines-file": "here.yaml" };
    const env = { ESPALIER_MESH_SEEDS_FILE: "there.yaml" };
    const { effective } = at("/etc/espalier/espalier.yaml", text, { flags, env });
    expect(effective["engines-file"]).toBe(resolve("here.yaml"));
    expect(effective.mesh["seeds-file"]).toBe(resolve("there.yaml"));
    expect(effective["engine-tls"]?.["ca-file"]).toBe("/etc/espalier/ca.pem");
  });

  test("of a file that comes through a pipe starts at the current folder", () => {
    expect(at("/dev/stdin", text).enginesFile).toBe(resolve("engines.yaml"));
  });

  test("of a file whose text replaces a value starts at the folder of the file that names it", () => {
    const read: string[] = [];
    const readText = (path: string): string => {
      read.push(path);
      return "some-key-that-is-long-enough";
    };
    at("/etc/espalier/espalier.yaml", 'admin: { key: "${file:secrets/admin}" }', { readText });
    at("/etc/espalier/espalier.yaml", 'admin: { key: "${file:/run/admin}" }', { readText });
    expect(read).toEqual(["/etc/espalier/secrets/admin", "/run/admin"]);
  });
});
