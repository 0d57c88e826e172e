import { createSeededRandom } from "@espalier/core";
import { createVirtualTime, waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { WebSocket } from "ws";
import { WebsocketProvider } from "y-websocket";
import * as Y from "yjs";
import {
  maxDocumentNameLength,
  readClientMessage,
  readDocumentRequest,
} from "../../src/y-websocket/y-websocket-endpoint.ts";
import { createMemoryDocuments, type EndpointRig, type EndpointRigOptions, startEndpoint } from "./rig.ts";

const journal = "journal/default/r1/17";
const emptyAwareness = [1, 1, 0];
const askForAll = Uint8Array.of(0, 0, 1, 0);
const undo: (() => unknown)[] = [];

afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step();
});

async function start(options: EndpointRigOptions): Promise<EndpointRig> {
  const rig = await startEndpoint(options);
  undo.push(() => rig.close());
  return rig;
}

/** The provider that browsers use. */
function follow(rig: EndpointRig, name: string, params: Record<string, string> = {}) {
  const doc = new Y.Doc();
  const provider = new WebsocketProvider(`${rig.url}/yjs`, name, doc, {
    params,
    disableBc: true,
    // The provider wants the browser's class; that of `ws` does all that it uses.
    WebSocketPolyfill: WebSocket as unknown as typeof globalThis.WebSocket,
  });
  undo.push(() => provider.destroy());
  return { doc, provider };
}

const textOf = (doc: Y.Doc): string => doc.getText("t").toString();

test("the stock provider gets what is there, says that it is synced, and follows live", async () => {
  const documents = createMemoryDocuments(journal);
  const source = documents.docs.get(journal)!;
  source.getText("t").insert(0, "before ");
  const rig = await start({ documents: [documents] });
  const { doc, provider } = follow(rig, journal);
  await waitFor(() => provider.synced, { what: "sync" });
  expect(textOf(doc)).toBe("before ");
  for (let round = 0; round < 20; round++) source.getText("t").insert(source.getText("t").length, `${round} `);
  await waitFor(() => textOf(doc) === textOf(source), { what: "live updates" });
  source.getText("t").delete(0, 7);
  await waitFor(() => textOf(doc) === textOf(source), { what: "a deletion" });
});

test("a source hears of each reader of a document, and once that it is gone; not of refused ones", async () => {
  const notified: string[] = [];
  const documents = {
    ...createMemoryDocuments(journal),
    onFollowed: (name: string) => {
      const reader = notified.push(`${name} follows`);
      return () => void notified.push(`${reader} is gone`);
    },
  };
  const rig = await start({ documents: [documents], limits: { maxConnections: 2 } });
  const [first, second] = [rig.connect(`/yjs/${journal}`), rig.connect(`/yjs/${journal}`)];
  await waitFor(() => first.isOpen() && second.isOpen(), { what: "two readers" });
  expect(notified).toEqual([`${journal} follows`, `${journal} follows`]);
  const refused = [rig.connect(`/yjs/${journal}`), rig.connect("/yjs/nothing")];
  await waitFor(() => refused.every((client) => client.status() !== undefined), { what: "refusals" });
  first.socket.close();
  await waitFor(() => notified.length === 3, { what: "the end of a reader" });
  second.socket.terminate();
  await waitFor(() => notified.length === 4, { what: "the loss of a reader" });
  expect(notified.slice(2)).toEqual(["1 is gone", "2 is gone"]);
});

test("a provider may escape the slashes of the name, and documents of several sources are found", async () => {
  const [first, second] = [createMemoryDocuments(journal), createMemoryDocuments("overview/r1")];
  second.docs.get("overview/r1")!.getText("t").insert(0, "hello");
  const rig = await start({ documents: [first, second] });
  const { doc, provider } = follow(rig, encodeURIComponent("overview/r1"));
  await waitFor(() => provider.synced, { what: "sync" });
  expect(textOf(doc)).toBe("hello");
  first.docs.get(journal)!.getText("t").insert(0, "not for it");
  second.docs.get("overview/r1")!.getText("t").insert(5, "!");
  await waitFor(() => textOf(doc) === "hello!", { what: "update of the second source" });
});

test("what a reader writes is counted and goes nowhere, and the reader stays", async () => {
  const documents = createMemoryDocuments(journal);
  const source = documents.docs.get(journal)!;
  const rig = await start({ documents: [documents] });
  const { doc, provider } = follow(rig, journal);
  await waitFor(() => provider.synced, { what: "sync" });
  for (let round = 0; round < 5; round++) doc.getText("t").insert(0, "mine");
  await waitFor(() => rig.meter.value("espalier_yjs_incidents_total", "write-ignored") === 5, { what: "five writes" });
  source.getMap("m").set("still", "there");
  await waitFor(() => doc.getMap("m").get("still") === "there", { what: "an update after the writes" });
  expect(textOf(source)).toBe("");
  expect(rig.endpoint.connectionCount).toBe(1);
});

test("a document larger than what may wait goes out in pieces, one after the other", async () => {
  const documents = createMemoryDocuments(journal);
  documents.docs.get(journal)!.getText("t").insert(0, "x".repeat(100_000));
  const rig = await start({ documents: [documents], limits: { pieceBytes: 10_000, maxBufferedBytes: 250_000 } });
  const { doc, provider } = follow(rig, journal);
  await waitFor(() => provider.synced, { what: "sync" });
  expect(textOf(doc)).toHaveLength(100_000);
  expect(documents.pieces.taken).toBeGreaterThan(10);
  expect(rig.meter.value("espalier_yjs_incidents_total", "buffer-full")).toBe(0);
});

test("questions that come while one is answered are answered once, by the latest", async () => {
  const documents = createMemoryDocuments(journal);
  documents.docs.get(journal)!.getText("t").insert(0, "x".repeat(10_000));
  const rig = await start({ documents: [documents], limits: { pieceBytes: 5_000 } });
  const client = rig.connect(`/yjs/${journal}`);
  await waitFor(client.isOpen, { what: "connection" });
  for (let question = 0; question < 50; question++) client.socket.send(askForAll);
  const synced = (): number => client.received.filter((message) => message[0] === 0 && message[1] === 1).length;
  await waitFor(() => synced() >= 1, { what: "an answer" });
  client.socket.send(Uint8Array.of(3));
  await waitFor(() => client.received.some((message) => message[0] === 1), { what: "answer to what came last" });
  expect(documents.pieces.taken).toBeLessThan(50);
});

test("without the key nobody reads, nor learns which documents there are", async () => {
  const documents = createMemoryDocuments(journal);
  const rig = await start({ documents: [documents], key: "open sesame" });
  const statusOf = async (path: string, headers: Record<string, string> = {}): Promise<number | undefined> => {
    const client = rig.connect(path, headers);
    return waitFor(() => client.status() ?? (client.isOpen() ? 101 : undefined), { what: "answer" });
  };
  expect(await statusOf(`/yjs/${journal}`)).toBe(401);
  expect(await statusOf(`/yjs/${journal}?key=wrong`)).toBe(401);
  expect(await statusOf("/yjs/unknown?key=wrong")).toBe(401);
  expect(await statusOf(`/yjs/${journal}?key=open%20sesame`, { authorization: "Bearer wrong" })).toBe(401);
  expect(await statusOf(`/yjs/${journal}?key=open%20sesame`)).toBe(101);
  expect(await statusOf(`/yjs/${journal}`, { authorization: "Bearer open sesame" })).toBe(101);
  expect(await statusOf("/yjs/unknown?key=open%20sesame")).toBe(404);
  expect(await statusOf("/yjs/%ff?key=open%20sesame")).toBe(400);
  expect(await statusOf("/elsewhere")).toBe(418);
  expect(rig.meter.value("espalier_yjs_refused_total", "401")).toBe(4);

  const { doc, provider } = follow(rig, journal, { key: "open sesame" });
  await waitFor(() => provider.synced, { what: "sync with the key" });
  documents.docs.get(journal)!.getText("t").insert(0, "secret");
  await waitFor(() => textOf(doc) === "secret", { what: "update" });
});

test("a page that may not is refused, whatever key it has", async () => {
  const options = { documents: [createMemoryDocuments(journal)], key: "open sesame", allowedOrigin: "http://page" };
  const rig = await start(options);
  const asking = (origin: string) => rig.connect(`/yjs/${journal}?key=open%20sesame`, { origin });
  const refused = asking("http://elsewhere");
  await waitFor(() => refused.status() !== undefined, { what: "a refusal" });
  expect([refused.status(), rig.meter.value("espalier_yjs_refused_total", "403")]).toEqual([403, 1]);
  const allowed = asking("http://page");
  await waitFor(allowed.isOpen, { what: "an open socket" });
});

test("a reader hears something every 15 s, and its question who is there is answered", async () => {
  const time = createVirtualTime();
  const rig = await start({ documents: [createMemoryDocuments(journal)], scheduler: time.scheduler });
  const client = rig.connect(`/yjs/${journal}`);
  await waitFor(() => client.isOpen() && rig.endpoint.connectionCount === 1, { what: "connection" });
  for (let heard = 1; heard <= 4; heard++) {
    time.advance(15_000);
    await waitFor(() => client.received.length === heard, { what: "awareness message" });
    expect([...client.received[heard - 1]!]).toEqual(emptyAwareness);
  }
  client.socket.send(Uint8Array.of(3));
  await waitFor(() => client.received.length === 5, { what: "answer" });
  expect([...client.received[4]!]).toEqual(emptyAwareness);
});

test("readers of a document that is gone are notified not to come back", async () => {
  const time = createVirtualTime();
  const documents = createMemoryDocuments(journal);
  const rig = await start({ documents: [documents], scheduler: time.scheduler });
  const { provider } = follow(rig, journal);
  await waitFor(() => provider.synced, { what: "sync" });
  documents.docs.delete(journal);
  time.advance(15_000);
  await waitFor(() => !provider.shouldConnect, { what: "end" });
});

test("one reader more than the bound is refused, and let in when one has left", async () => {
  const rig = await start({ documents: [createMemoryDocuments(journal)], limits: { maxConnections: 2 } });
  const clients = [rig.connect(`/yjs/${journal}`), rig.connect(`/yjs/${journal}`)];
  await waitFor(() => clients.every((client) => client.isOpen()), { what: "two readers" });
  const third = rig.connect(`/yjs/${journal}`);
  expect(await waitFor(() => third.status(), { what: "refusal" })).toBe(503);
  clients[0]!.socket.close();
  await waitFor(() => rig.endpoint.connectionCount === 1, { what: "departure" });
  const fourth = rig.connect(`/yjs/${journal}`);
  await waitFor(fourth.isOpen, { what: "third reader" });
});

test("a reader that does not read is cut off when too much waits for it; others are not", async () => {
  const documents = createMemoryDocuments(journal);
  const rig = await start({ documents: [documents], limits: { maxBufferedBytes: 1_048_576 } });
  const { doc } = follow(rig, journal);
  const slow = rig.connect(`/yjs/${journal}`);
  // A socket that is not open yet cannot be paused.
  await waitFor(() => slow.isOpen() && rig.endpoint.connectionCount === 2, { what: "two readers" });
  slow.socket.pause();
  const source = documents.docs.get(journal)!;
  const isQuick = (): boolean => Buffer.from(Y.encodeStateVector(doc)).equals(Y.encodeStateVector(source));
  const fill = (): boolean => {
    if (!isQuick()) return false;
    source.getText("t").insert(0, "y".repeat(262_144));
    source.getText("t").delete(0, 262_144);
    return rig.meter.value("espalier_yjs_incidents_total", "buffer-full") === 1;
  };
  await waitFor(fill, { what: "cut" });
  await waitFor(() => rig.endpoint.connectionCount === 1, { what: "only the quick reader" });
  source.getText("t").insert(0, "end");
  await waitFor(() => textOf(doc) === "end", { what: "the quick reader up to date" });
});

test("unreadable, oversized and text messages end that connection only, and are counted", async () => {
  const rig = await start({ documents: [createMemoryDocuments(journal)] });
  const witness = rig.connect(`/yjs/${journal}`);
  await waitFor(witness.isOpen, { what: "witness" });
  const ends: [string | Uint8Array, number][] = [
    [Uint8Array.of(0, 0, 200), 4400],
    [Uint8Array.of(0, 0, 0), 4400],
    [new Uint8Array(0), 4400],
    ["text", 4400],
    [new Uint8Array(65_537), 1009],
  ];
  for (const [message, code] of ends) {
    const client = rig.connect(`/yjs/${journal}`);
    await waitFor(client.isOpen, { what: "connection" });
    client.socket.send(message);
    expect(await waitFor(() => client.closeCode(), { what: "end" })).toBe(code);
  }
  expect(rig.meter.value("espalier_yjs_incidents_total", "message-unreadable")).toBe(4);
  witness.socket.send(Uint8Array.of(9, 9, 9));
  witness.socket.send(askForAll);
  await waitFor(() => witness.received.length >= 2, { what: "answer to the witness" });
  expect(rig.meter.value("espalier_yjs_incidents_total", "message-unknown")).toBe(1);
});

test("any bytes are read or refused with a RangeError", () => {
  const random = createSeededRandom(7);
  for (let round = 0; round < 5_000; round++) {
    const bytes = Uint8Array.from({ length: random.integer(12) }, () => random.integer(random.integer(2) ? 256 : 4));
    try {
      expect(readClientMessage(bytes, 100).kind).toMatch(/^(sync-step-1|write|awareness|query-awareness|unknown)$/);
    } catch (error) {
      expect(error).toBeInstanceOf(RangeError);
    }
  }
});

test("a name may be as long as the bound, and not longer", () => {
  const longest = "n".repeat(maxDocumentNameLength);
  expect(readDocumentRequest(`/yjs/${longest}?key=a+b`)).toEqual({ name: longest, key: "a b" });
  expect(readDocumentRequest(`/yjs/${longest}n`)).toBe("invalid");
  expect(readDocumentRequest("/yjs/")).toBe("invalid");
  expect(readDocumentRequest("/yjs/a%2Fb/c")).toEqual({ name: "a/b/c", key: undefined });
  expect(readDocumentRequest("/other")).toBeUndefined();
});

test("the stop cuts off readers and leaves no timer", async () => {
  const time = createVirtualTime();
  const rig = await start({ documents: [createMemoryDocuments(journal)], scheduler: time.scheduler });
  const client = rig.connect(`/yjs/${journal}`);
  await waitFor(() => rig.endpoint.connectionCount === 1, { what: "connection" });
  rig.endpoint.stop();
  await waitFor(() => client.closeCode() !== undefined, { what: "end" });
  expect(time.pendingCount).toBe(0);
});
