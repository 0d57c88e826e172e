import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A certificate and its key, as PEM texts. */
export interface Certificate {
  readonly cert: string;
  readonly key: string;
}

/** Whether the openssl program is installed. */
export function hasOpenssl(): boolean {
  try {
    execFileSync("openssl", ["version"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

export type Authority = ReturnType<typeof createAuthority>;

/**
 * A certificate authority in a temporary folder. Its certificates are valid for two days.
 *
 * @param subject of its certificates, as openssl writes it: `IP:127.0.0.1`, `DNS:router.test`
 * @throws Error when openssl is absent
 */
export function createAuthority(subject = "IP:127.0.0.1") {
  const folder = mkdtempSync(join(tmpdir(), "espalier-authority-"));
  const run = (...args: readonly string[]): void =>
    void execFileSync("openssl", args, { cwd: folder, stdio: "ignore" });
  const read = (file: string): string => readFileSync(join(folder, file), "utf8");
  const newKey = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
  run("req", "-x509", ...newKey, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test authority");
  writeFileSync(join(folder, "names.cnf"), `subjectAltName=${subject}\n`);
  return {
    /** Its own certificate, as PEM text. */
    ca: read("ca.pem"),
    /** Signs a new certificate. */
    issue(): Certificate {
      const signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names.cnf"];
      run("req", ...newKey, "-keyout", "key.pem", "-out", "request.pem", "-subj", "/CN=test");
      run("x509", "-req", "-in", "request.pem", "-out", "cert.pem", ...signing);
      return { cert: read("cert.pem"), key: read("key.pem") };
    },
    /** Removes its files; issued certificates stay valid. */
    close: (): void => rmSync(folder, { recursive: true, force: true }),
  };
}

/** A self-signed certificate for `localhost` and 127.0.0.1, and its key, only for tests. */
export const certificate = `-----BEGIN CERTIFICATE-----
MIIBmzCCAUGgAwIBAgIUBxNwe1hpjuMLWQYTRwX8iW3OGNQwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMTA0NDIzNVoYDzIxMjYxMDI4
MDQ0MjM1WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAAT2idhYVj8OtZpPJZl+2XMlBdTZYYVnXOpuQ1sofgMfo4FtsFj2RrxV
e6T6U3YvYGB1bSHCRjBYib7RxMi/kkIzo28wbTAdBgNVHQ4EFgQUjgP4YNrr3shC
4guEkgSNK4EoiwcwHwYDVR0jBBgwFoAUjgP4YNrr3shC4guEkgSNK4EoiwcwDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI
zj0EAwIDSAAwRQIgQ2tlD+WlWoDOJGQ8gLObFR/nvIASw2Fy82XKQNyDYLgCIQDA
ceMIdk4Ep94NUern65KVnHef/q1E9nrZuV6cB+NXmQ==
-----END CERTIFICATE-----`;

export const privateKey = `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgCG3LubsSD3hvoSUq
1VPGlmFzeDuKPBeK18+fPrcen3WhRANCAAT2idhYVj8OtZpPJZl+2XMlBdTZYYVn
XOpuQ1sofgMfo4FtsFj2RrxVe6T6U3YvYGB1bSHCRjBYib7RxMi/kkIz
-----END PRIVATE KEY-----`;
