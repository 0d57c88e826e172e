import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Rig } from "./rig.ts";

/** A certificate and its key, as PEM texts. */
export interface Certificate {
  readonly cert: string;
  readonly key: string;
}

export interface Authority {
  /** Its own certificate. */
  readonly ca: string;
  /** Signs a new certificate for 127.0.0.1. */
  issue(): Certificate;
}

/** Whether the openssl program is there to make certificates with. */
export function hasOpenssl(): boolean {
  try {
    execFileSync("openssl", ["version"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

/** An authority that is gone when the test is over. */
export function makeAuthority(rig: Rig): Authority {
  const folder = mkdtempSync(join(tmpdir(), "espalier-authority-"));
  rig.own(() => rmSync(folder, { recursive: true }));
  const run = (...args: readonly string[]): void =>
    void execFileSync("openssl", args, { cwd: folder, stdio: "ignore" });
  const read = (file: string): string => readFileSync(join(folder, file), "utf8");
  const newKey = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
  run("req", "-x509", ...newKey, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test authority");
  writeFileSync(join(folder, "names.cnf"), "subjectAltName=IP:127.0.0.1\n");
  return {
    ca: read("ca.pem"),
    issue() {
      const signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names.cnf"];
      run("req", ...newKey, "-keyout", "key.pem", "-out", "request.pem", "-subj", "/CN=127.0.0.1");
      run("x509", "-req", "-in", "request.pem", "-out", "cert.pem", ...signing);
      return { cert: read("cert.pem"), key: read("key.pem") };
    },
  };
}

/** Files of a listener's certificates, and how they are replaced. */
export function certificateFiles(rig: Rig, first: Certificate & { readonly ca?: string }) {
  const folder = mkdtempSync(join(tmpdir(), "espalier-certificates-"));
  rig.own(() => rmSync(folder, { recursive: true }));
  const path = (name: string): string => join(folder, name);
  const write = (tls: Partial<Certificate & { readonly ca: string }>): void => {
    for (const [name, text] of Object.entries(tls)) writeFileSync(path(`${name}.pem`), text);
  };
  write(first);
  const own = { "cert-file": path("cert.pem"), "key-file": path("key.pem") };
  return { write, tls: first.ca === undefined ? own : { ...own, "ca-file": path("ca.pem") } };
}
