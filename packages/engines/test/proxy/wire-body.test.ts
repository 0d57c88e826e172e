import { expect, test } from "vitest";
import { PiecedBody, wireBody } from "../../src/proxy/connection.ts";

test("a body up to 128 KiB goes out as one buffer, without a copy where it is one", () => {
  const whole = Buffer.alloc(131_072);
  expect(wireBody([whole])).toBe(whole);
  expect(wireBody([Buffer.from("a"), Buffer.from("b")])).toEqual(Buffer.from("ab"));
  expect(wireBody([])).toBeNull();
});

test("a larger one goes out in its own pieces, as often as it is sent, until it is let go of", () => {
  const pieces = [Buffer.alloc(131_072), Buffer.alloc(1)];
  const body = wireBody(pieces);
  if (!(body instanceof PiecedBody)) throw new Error("it was joined");
  expect(body.sizeBytes).toBe(131_073);
  for (let attempt = 0; attempt < 2; attempt++)
    expect([...body].map((piece, at) => piece === pieces[at])).toEqual([true, true]);
  body.release();
  expect([...body]).toEqual([]);
});
