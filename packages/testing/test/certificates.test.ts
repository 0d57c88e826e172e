import { X509Certificate } from "node:crypto";
import { expect, onTestFinished, test } from "vitest";
import { createAuthority, hasOpenssl } from "../src/index.ts";

if (!hasOpenssl())
  process.stderr.write("NOT RUN: an authority of tests, because there is no openssl to make it with\n");

test.skipIf(!hasOpenssl())("an authority signs certificates for whom it was made, each of its own key", () => {
  const [one, other] = [createAuthority("DNS:router.test"), createAuthority()];
  onTestFinished(() => other.close());
  const [first, second] = [one.issue(), one.issue()];
  one.close();
  const [ca, stranger] = [new X509Certificate(one.ca), new X509Certificate(other.ca)];
  for (const { cert } of [first, second]) {
    const certificate = new X509Certificate(cert);
    expect([certificate.verify(ca.publicKey), certificate.verify(stranger.publicKey)]).toEqual([true, false]);
    expect(certificate.checkHost("router.test")).toBe("router.test");
  }
  expect(first.key).not.toBe(second.key);
  expect(new X509Certificate(other.issue().cert).checkIP("127.0.0.1")).toBe("127.0.0.1");
});
