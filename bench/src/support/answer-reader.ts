/** Reads the answers of one connection, one after the other, as cheaply as they can be judged. */
export interface AnswerReader {
  /** Whether a byte of the present answer's body has come. */
  readonly begun: boolean;
  /**
   * @returns whether the answer is complete; the next chunk then begins another one
   * @throws Error for a status other than 200, a stream that ends without `[DONE]`, or bytes that do not belong
   */
  push(chunk: Buffer): boolean;
}

/** Longer heads are taken for something other than HTTP. */
const maxHeadBytes = 65_536;
const headEnd = "\r\n\r\n";
/** How a complete stream ends: its last event, the end of that chunk, and the chunk of length 0. */
const streamEnd = Buffer.from("[DONE]\n\n\r\n0\r\n\r\n");
const lastChunk = streamEnd.subarray(-5);
const lineFeed = 0x0a;

/** Where the reader stands: in the head, in a body of known length, or in a body of chunks. */
type Part = "head" | "sized" | "chunked";

/** Knows the two kinds of answers that the engine gives: JSON of known length, and event streams in chunks. */
export function createAnswerReader(): AnswerReader {
  let part: Part = "head";
  let held: Buffer | undefined;
  let missingBytes = 0;
  let begun = false;
  const tail = Buffer.alloc(streamEnd.length);

  const finish = (): boolean => {
    part = "head";
    begun = false;
    tail.fill(0);
    return true;
  };
  const readBody = (bytes: Buffer): boolean => {
    if (bytes.length === 0) return missingBytes === 0 && part === "sized" && finish();
    begun = true;
    if (part === "sized") {
      missingBytes -= bytes.length;
      if (missingBytes < 0) throw new Error("the answer is longer than its content-length");
      return missingBytes === 0 && finish();
    }
    keepTail(tail, bytes);
    if (tail[tail.length - 1] !== lineFeed || !tail.subarray(-lastChunk.length).equals(lastChunk)) return false;
    if (!tail.equals(streamEnd)) throw new Error("the stream ended without [DONE]");
    return finish();
  };
  return {
    get begun() {
      return begun;
    },
    push(chunk) {
      if (part !== "head") return readBody(chunk);
      const bytes = held ? Buffer.concat([held, chunk]) : chunk;
      const end = bytes.indexOf(headEnd);
      if (end < 0) {
        if (bytes.length > maxHeadBytes) throw new Error("the head of the answer does not end");
        held = bytes;
        return false;
      }
      held = undefined;
      const length = readHead(bytes, end);
      part = length === undefined ? "chunked" : "sized";
      missingBytes = length ?? 0;
      return readBody(bytes.subarray(end + headEnd.length));
    },
  };
}

/** @returns the length of the body, or undefined when it comes in chunks */
function readHead(bytes: Buffer, end: number): number | undefined {
  const head = bytes.toString("latin1", 0, end + 2).toLowerCase();
  if (!head.startsWith("http/1.1 200 ")) {
    throw new Error(
      `answered ${bytes.toString("latin1", 0, Math.min(bytes.length, end + 300)).replaceAll("\r\n", " | ")}`,
    );
  }
  const length = fieldOf(head, "\r\ncontent-length:");
  if (length !== undefined) return Number(length);
  if (fieldOf(head, "\r\ntransfer-encoding:") !== "chunked")
    throw new Error("the answer has neither length nor chunks");
  return undefined;
}

function fieldOf(head: string, name: string): string | undefined {
  const at = head.indexOf(name);
  return at < 0 ? undefined : head.slice(at + name.length, head.indexOf("\r\n", at + 2)).trim();
}

/** Shifts the newest bytes in, so that an end that is spread over packets is seen too. */
function keepTail(tail: Buffer, bytes: Buffer): void {
  if (bytes.length >= tail.length) {
    bytes.copy(tail, 0, bytes.length - tail.length);
    return;
  }
  tail.copyWithin(0, bytes.length);
  bytes.copy(tail, tail.length - bytes.length);
}
