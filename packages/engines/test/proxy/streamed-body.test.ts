import { expect, test } from "vitest";
import { maxHeldBytes, StreamedBody } from "../../src/proxy/streamed-body.ts";

const quarter = Buffer.alloc(262_144);

async function take(reader: AsyncIterator<Buffer>, count: number): Promise<number> {
  let bytes = 0;
  for (let at = 0; at < count; at++) bytes += ((await reader.next()).value as Buffer).length;
  return bytes;
}

test("its sender pauses when 256 KiB wait, and goes on when they are taken", async () => {
  const body = new StreamedBody([], undefined);
  let demands = 0;
  body.onDemand = () => {
    demands += 1;
  };
  expect(body.push(quarter.subarray(1))).toBe(true);
  expect(body.push(Buffer.alloc(1))).toBe(false);
  const reader = body[Symbol.asyncIterator]();
  await reader.next();
  expect(demands).toBe(1);
  expect(body.push(quarter.subarray(2))).toBe(true);
});

test("1 MiB of it can be read again; from the next byte on what was taken is dropped", async () => {
  const body = new StreamedBody([quarter, quarter], undefined);
  await take(body[Symbol.asyncIterator](), 2);
  body.push(quarter);
  body.push(quarter);
  expect(maxHeldBytes).toBe(4 * quarter.length);
  const second = body[Symbol.asyncIterator]();
  expect([body.isWhole, await take(second, 4)]).toEqual([true, maxHeldBytes]);
  body.push(Buffer.alloc(1));
  expect(body.isWhole).toBe(false);
  expect((await second.next()).value).toHaveLength(1);
  body.end();
  expect((await second.next()).done).toBe(true);
});

test("a body that was complete before it was sent is held, however long", async () => {
  const body = new StreamedBody(Array<Buffer>(8).fill(quarter), 8 * quarter.length);
  body.end();
  for (let attempt = 0; attempt < 2; attempt++) {
    expect(await take(body[Symbol.asyncIterator](), 8)).toBe(2 * maxHeldBytes);
    expect(body.isWhole).toBe(true);
  }
  body.release();
  expect(body.isWhole).toBe(false);
});

test("a new reader, a fault and the end of the request stop a reader that waits", async () => {
  const body = new StreamedBody([Buffer.from("a")], undefined);
  const first = body[Symbol.asyncIterator]();
  await first.next();
  const waiting = first.next();
  const second = body[Symbol.asyncIterator]();
  await expect(waiting).rejects.toThrow("Another attempt");
  expect(String((await second.next()).value)).toBe("a");
  const fault = second.next();
  const faults: Error[] = [];
  body.fail(new Error("unfit"));
  body.onFault = (error) => faults.push(error);
  await expect(fault).rejects.toThrow("unfit");
  expect(faults.map(({ message }) => message)).toEqual(["unfit"]);

  const other = new StreamedBody([], undefined);
  const last = other[Symbol.asyncIterator]().next();
  other.close();
  await expect(last).rejects.toThrow();
});

test("a part of its beginning can be replaced, and its length is that of the result", async () => {
  const body = new StreamedBody([Buffer.from("mod"), Buffer.from("el=w;x")], 12);
  body.replace(6, 7, Buffer.from("whisper"));
  body.push(Buffer.from("yz."));
  body.end();
  let text = "";
  for await (const piece of body) text += String(piece);
  expect([text, body.sizeBytes]).toEqual(["model=whisper;xyz.", 18]);
});
