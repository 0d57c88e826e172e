import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A certificate and its key, as PEM texts. */
export interface Certificate {
  readonly cert: string;
  readonly key: string;
}

export interface Authority {
  /** Its own certificate, as PEM text. */
  readonly ca: string;
  /** Signs a new certificate. */
  issue(): Certificate;
  /** Removes its files; what it has signed stays good. */
  close(): void;
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

/**
 * An authority with a folder of its own. Certificates are good for two days.
 *
 * @param subject whom its certificates are for, as openssl writes it: `IP:127.0.0.1`, `DNS:router.test`
 * @throws Error when openssl is absent
 */
export function createAuthority(subject = "IP:127.0.0.1"): Authority {
  const folder = mkdtempSync(join(tmpdir(), "espalier-authority-"));
  const run = (...args: readonly string[]): void =>
    void execFileSync("openssl", args, { cwd: folder, stdio: "ignore" });
  const read = (file: string): string => readFileSync(join(folder, file), "utf8");
  const newKey = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
  run("req", "-x509", ...newKey, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test authority");
  writeFileSync(join(folder, "names.cnf"), `subjectAltName=${subject}\n`);
  return {
    ca: read("ca.pem"),
    issue() {
      const signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names.cnf"];
      run("req", ...newKey, "-keyout", "key.pem", "-out", "request.pem", "-subj", "/CN=test");
      run("x509", "-req", "-in", "request.pem", "-out", "cert.pem", ...signing);
      return { cert: read("cert.pem"), key: read("key.pem") };
    },
    close: () => rmSync(folder, { recursive: true, force: true }),
  };
}
