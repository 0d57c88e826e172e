import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { MutualTls } from "../../src/transport/ws-options.ts";

/** Whether the openssl program is there to make certificates with. */
export function hasOpenssl(): boolean {
  try {
    execFileSync("openssl", ["version"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

/** Makes an authority and a certificate that it has signed for a name. */
export function makeCertificates(name: string): MutualTls {
  const folder = mkdtempSync(join(tmpdir(), "espalier-mesh-"));
  try {
    const run = (...args: string[]): void => {
      execFileSync("openssl", args, { cwd: folder, stdio: "ignore" });
    };
    const newKey = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    run("req", "-x509", ...newKey, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test authority");
    run("req", ...newKey, "-keyout", "key.pem", "-out", "request.pem", "-subj", `/CN=${name}`);
    writeFileSync(join(folder, "names.cnf"), `subjectAltName=DNS:${name}\n`);
    const signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names.cnf"];
    run("x509", "-req", "-in", "request.pem", "-out", "cert.pem", ...signing);
    const read = (file: string): string => readFileSync(join(folder, file), "utf8");
    return { ca: read("ca.pem"), cert: read("cert.pem"), key: read("key.pem") };
  } finally {
    rmSync(folder, { recursive: true });
  }
}
