import { createSeededRandom, type Random } from "@espalier/core";
import { fixedSeeds } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { GatewayStream, type RequestHead, type StreamEnd, type StreamOwner } from "../../src/grpc/gateway-stream.ts";
import { type BodyMode, bodyModes, type ProcessingRequest, type ProcessingResponse } from "../../src/grpc/messages.ts";

/** What an exchange tells its owner, and what it sends. */
interface Played {
  readonly stream: GatewayStream;
  readonly sent: ProcessingResponse[];
  readonly reported: string[];
  readonly body: Buffer[];
  readonly answer: Buffer[];
  head: RequestHead | undefined;
  end: StreamEnd | undefined;
  /** Sends on what it receives, unless set otherwise. */
  onReceived: (chunk: Buffer) => void;
}

function play(onComplete: (played: Played) => void = route): Played {
  const sent: ProcessingResponse[] = [];
  const reported: string[] = [];
  const stream = new GatewayStream({
    write: (message) => sent.push(message) > 0,
    end: () => void reported.push("stream ended"),
    fail: (why) => void reported.push(`stream failed: ${why}`),
    pause: () => void reported.push("paused"),
    resume: () => void reported.push("resumed"),
  });
  const played: Played = {
    ...{ stream, sent, reported, body: [], answer: [], head: undefined, end: undefined },
    onReceived: (chunk) => void stream.write(chunk),
  };
  const owner: StreamOwner = {
    head(head) {
      played.head = head;
    },
    piece: (chunk) => void played.body.push(chunk),
    complete() {
      reported.push("complete");
      onComplete(played);
    },
    answered(status) {
      reported.push(`answered ${status}`);
      stream.answerHeaders(["x-picked", "yes"], []);
    },
    received(chunk) {
      played.answer.push(chunk);
      played.onReceived(chunk);
      return true;
    },
    ended() {
      reported.push("ended");
      stream.end();
    },
    drained() {},
    closed(how) {
      played.end = how;
    },
  };
  stream.follow(owner);
  return played;
}

function route({ stream, body }: Played): void {
  stream.route({
    ...{ destinations: ["10.0.0.1:8000"], scores: undefined, setHeaders: ["x-a", "b"], removeHeaders: ["x-c"] },
    ...{ body, isBodyChanged: false },
  });
}

const head = (modes: { requestBodyMode?: BodyMode; responseBodyMode?: BodyMode } = {}): ProcessingRequest => ({
  requestHeaders: { headers: { headers: [{ key: ":path", rawValue: Buffer.from("/x") }] } },
  protocolConfig: {
    requestBodyMode: bodyModes.fullDuplexStreamed,
    responseBodyMode: bodyModes.fullDuplexStreamed,
    ...modes,
  },
});
const body = (text: string | Buffer, endOfStream = true): ProcessingRequest => ({
  requestBody: { body: Buffer.from(text), endOfStream },
});
const answerHead = (endOfStream = false): ProcessingRequest => ({
  responseHeaders: { headers: { headers: [{ key: ":status", rawValue: Buffer.from("200") }] }, endOfStream },
});
const answerBody = (text: string | Buffer, endOfStream = true): ProcessingRequest => ({
  responseBody: { body: Buffer.from(text), endOfStream },
});

const streamedRequest = (sent: readonly ProcessingResponse[]): Buffer =>
  Buffer.concat(
    sent.map(({ requestBody }) => requestBody?.response?.bodyMutation?.streamedResponse?.body ?? Buffer.alloc(0)),
  );
const streamedAnswer = (sent: readonly ProcessingResponse[]): Buffer =>
  Buffer.concat(
    sent.map(({ responseBody }) => responseBody?.response?.bodyMutation?.streamedResponse?.body ?? Buffer.alloc(0)),
  );

test.each(fixedSeeds(200))("bodies of any size in any pieces pass whole, with one end each: seed %i", (seed) => {
  const random = createSeededRandom(seed);
  const [request, answer] = [randomBytes(random, 700_000), randomBytes(random, 700_000)];
  const played = play();
  played.stream.accept(head());
  for (const [piece, isLast] of cut(random, request)) played.stream.accept(body(piece, isLast));
  // Envoy may repeat the end.
  if (random.integer(2) === 0) played.stream.accept(body("", true));
  played.stream.accept(answerHead());
  for (const [piece, isLast] of cut(random, answer)) played.stream.accept(answerBody(piece, isLast));
  expect(Buffer.concat(played.body).equals(request)).toBe(true);
  expect(streamedRequest(played.sent).equals(request)).toBe(true);
  expect(streamedAnswer(played.sent).equals(answer)).toBe(true);
  const ends = (field: "requestBody" | "responseBody") =>
    played.sent.filter((message) => message[field]?.response?.bodyMutation?.streamedResponse?.endOfStream).length;
  expect([ends("requestBody"), ends("responseBody")]).toEqual([1, 1]);
  expect(played.reported).toEqual(["complete", "answered 200", "ended", "stream ended"]);
  expect(played.end).toBe("finished");
});

function randomBytes(random: Random, most: number): Buffer {
  const bytes = Buffer.alloc(random.integer(random.integer(3) === 0 ? most : 200));
  for (let at = 0; at < bytes.length; at += 97) bytes[at] = random.integer(256);
  return bytes;
}

/** Pieces of any length, empty ones too; the last one carries the end. */
function* cut(random: Random, bytes: Buffer): Generator<readonly [Buffer, boolean]> {
  let from = 0;
  while (from < bytes.length) {
    const to = Math.min(bytes.length, from + random.integer(300_000));
    const isLast = to === bytes.length && random.integer(2) === 0;
    yield [bytes.subarray(from, to), isLast];
    from = to;
    if (isLast) return;
  }
  yield [Buffer.alloc(0), true];
}

describe("how bodies are shown", () => {
  test.each([
    ["streamed", bodyModes.streamed],
    ["partly buffered", bodyModes.bufferedPartial],
    ["not shown", bodyModes.none],
  ])("%s: the head is answered at once, and pieces that come all the same pass unchanged", (_, requestBodyMode) => {
    const played = play();
    played.stream.accept(head({ requestBodyMode }));
    expect(played.head?.showsBody).toBe(false);
    expect(played.reported).toEqual(["complete"]);
    played.stream.accept(body("a", false));
    played.stream.accept(body("b"));
    expect(played.sent.slice(1)).toEqual([{ requestBody: {} }, { requestBody: {} }]);
    expect(played.body).toEqual([]);
  });

  test("an answer that is streamed piece by piece gets one answer for each piece", () => {
    const played = play();
    played.stream.accept(head({ responseBodyMode: bodyModes.streamed }));
    played.stream.accept(body("{}"));
    played.stream.accept(answerHead());
    const before = played.sent.length;
    played.stream.accept(answerBody("same", false));
    played.onReceived = () => {};
    played.stream.accept(answerBody("dropped", false));
    played.onReceived = (chunk) => {
      played.stream.write(Buffer.from("one "));
      played.stream.write(chunk);
    };
    played.stream.accept(answerBody("more"));
    expect(played.sent.slice(before)).toEqual([
      { responseBody: {} },
      { responseBody: { response: { bodyMutation: { body: Buffer.alloc(0) } } } },
      { responseBody: { response: { bodyMutation: { body: Buffer.from("one more") } } } },
    ]);
  });

  test("an observing gateway is told nothing", () => {
    const played = play();
    played.stream.accept({ ...head(), observabilityMode: true });
    expect([played.sent, played.reported]).toEqual([[], []]);
  });
});

describe("how exchanges end", () => {
  const shown = bodyModes.fullDuplexStreamed;
  test.each<readonly [string, BodyMode, "routed" | "answering" | "body", boolean, StreamEnd]>([
    ["reset before the request is whole", bodyModes.none, "body", true, "aborted"],
    ["reset after the route, where the answer is not shown", bodyModes.none, "routed", true, "unseen"],
    ["closed after the route, as when the client leaves", bodyModes.none, "routed", false, "aborted"],
    ["closed after the head of an answer that is not shown", bodyModes.none, "answering", false, "unseen"],
    ["reset after the route, where the answer is shown", shown, "routed", true, "aborted"],
    ["closed in the middle of a shown answer", shown, "answering", false, "aborted"],
  ])("%s", (_, responseBodyMode, phase, isReset, expected) => {
    const played = play();
    played.stream.accept(head({ responseBodyMode }));
    if (phase !== "body") played.stream.accept(body("{}"));
    if (phase === "answering") played.stream.accept(answerHead());
    played.stream.close(isReset);
    expect(played.end).toBe(expected);
    played.stream.close(true);
    played.stream.accept(answerBody("late"));
    expect(played.end).toBe(expected);
  });

  test("refused in the middle of a body: what follows is ignored", () => {
    const played = play();
    played.stream.accept(head());
    played.stream.accept(body("a", false));
    played.stream.refuse(413, ["content-type", "text/plain"], Buffer.from("too long"), "why");
    expect(played.sent.at(-1)?.immediateResponse).toMatchObject({ status: { code: 413 }, details: "why" });
    expect([played.end, played.reported]).toEqual(["finished", ["stream ended"]]);
    played.stream.accept(body("b"));
    played.stream.refuse(500, [], Buffer.alloc(0), "twice");
    expect(played.sent).toHaveLength(1);
  });

  test("an answer without a body ends with its head", () => {
    const played = play();
    played.stream.accept(head());
    played.stream.accept(body("{}"));
    played.stream.accept(answerHead(true));
    expect(played.reported).toEqual(["complete", "answered 200", "ended", "stream ended"]);
  });
});

test("the endpoints that a gateway allows: a list, one text with commas, an empty list, or none", () => {
  const subsetIn = (value: object | undefined): readonly string[] | undefined => {
    const played = play();
    const fields = value && { "x-gateway-destination-endpoint-subset": value };
    played.stream.accept({
      ...head(),
      ...(fields && { metadataContext: { filterMetadata: { "envoy.lb.subset_hint": { fields } } } }),
    });
    return played.head?.subset && [...played.head.subset];
  };
  const values = [{ stringValue: "10.0.0.1:80" }, { stringValue: " 10.0.0.2:80,10.0.0.3:80" }, { numberValue: 4 }];
  expect(subsetIn({ listValue: { values } })).toEqual(["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"]);
  expect(subsetIn({ stringValue: "10.0.0.1:80, 10.0.0.2:80" })).toEqual(["10.0.0.1:80", "10.0.0.2:80"]);
  expect(subsetIn({ listValue: { values: [] } })).toEqual([]);
  expect(subsetIn(undefined)).toBeUndefined();
});

test("headers: raw values first, names in lower case, repeated ones joined", () => {
  const played = play();
  played.stream.accept({
    requestHeaders: {
      headers: {
        headers: [
          { key: ":method", value: "POST" },
          { key: ":path", rawValue: Buffer.from("/a?b") },
          { key: "X-One", value: "plain", rawValue: Buffer.from("raw") },
          { key: "x-two", value: "1" },
          { key: "x-two", rawValue: Buffer.from("2") },
        ],
      },
    },
  });
  expect(played.head).toMatchObject({ method: "POST", path: "/a?b", headers: { "x-one": "raw", "x-two": "1, 2" } });
  expect(played.head?.rawHeaders).toEqual(["X-One", "raw", "x-two", "1", "x-two", "2"]);
});
