import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Authority, type Certificate, createAuthority } from "@espalier/testing";
import type { Rig } from "./rig.ts";

/** An authority for 127.0.0.1 that is gone when the test is over. */
export function makeAuthority(rig: Rig): Authority {
  const authority = createAuthority();
  rig.own(() => authority.close());
  return authority;
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
