import { blockText } from "@espalier/simulator";
import { benchModel } from "../support/bench-model.ts";

/**
 * How the engine should stream the answer. Absent means one JSON object. The shape is encoded in a field that every
 * router forwards, even one that rewrites the body, renames some fields, and drops unknown headers and fields.
 */
export interface StreamShape {
  /** At most as many as the bench's engine has in a stream. */
  readonly tokens: number;
  /** Time between two tokens; 0 for no delay. */
  readonly gapMs: number;
}

export interface RequestShape {
  /** Exact size of the body. */
  readonly bodyBytes: number;
  /** Messages of the chat: the first by the system, the others by user and assistant in turn. */
  readonly messages: number;
  readonly stream?: StreamShape;
  /** Functions that the model may call, about 2.7 KB each, as agents send them. */
  readonly tools?: number;
  /**
   * Sets the length of the last message, in bytes, and puts the number there: the other messages are a continued
   * conversation.
   */
  readonly lastMessageBytes?: number;
}

/** The bytes of a whole request, with a place for a number that makes every prompt different. */
export interface PreparedRequest {
  readonly bytes: Buffer;
  readonly serialAt: number;
}

/** Precedes the stream's shape in the field `stop`, as in `stream 48,10`. */
const streamMark = "stream ";

/** Digits of the number in a request. */
export const serialDigits = 12;
const serialMark = "0".repeat(serialDigits);
const wordsPerLine = 14;
/** Bytes reserved for the fields besides the messages, and for what a message has besides its content. */
const fieldBytes = 192;
const messageBytes = 48;

/**
 * A chat completion request as a client library sends it. The number is at the start of the first message, so that no
 * two requests share a prefix, unless the shape puts it in the last message.
 *
 * @throws RangeError when the messages do not fit in the body
 */
export function prepareRequest(shape: RequestShape): PreparedRequest {
  const body = chatBody(shape);
  const head =
    "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\naccept: application/json\r\n" +
    "content-type: application/json\r\nauthorization: Bearer bench\r\nuser-agent: bench/1\r\n" +
    `content-length: ${body.length}\r\n\r\n`;
  return { bytes: Buffer.from(head + body, "latin1"), serialAt: head.length + body.indexOf(serialMark) };
}

/** Overwrites the digits of the previous number. @param serial a safe integer, of which 12 digits are used */
export function stampSerial(bytes: Buffer, serialAt: number, serial: number): void {
  let left = serial;
  for (let at = serialAt + serialDigits - 1; at >= serialAt; at--) {
    bytes[at] = 0x30 + (left % 10);
    left = Math.floor(left / 10);
  }
}

function chatBody({ bodyBytes, messages, stream, lastMessageBytes, tools = 0 }: RequestShape): string {
  const equal = lastMessageBytes === undefined ? messages : messages - 1;
  const functions = tools > 0 ? { tools: Array.from({ length: tools }, (_, index) => toolOf(index)) } : {};
  const otherBytes = fieldBytes + JSON.stringify(functions).length + (lastMessageBytes ?? 0);
  const contentBytes = Math.floor((bodyBytes - otherBytes) / equal) - messageBytes;
  const numbered = lastMessageBytes === undefined ? 0 : messages - 1;
  const sizeOf = (index: number): number => (index < equal ? contentBytes : (lastMessageBytes ?? 0));
  if (contentBytes < wordsPerLine) throw new RangeError(`${messages} messages do not fit in ${bodyBytes} bytes`);
  const bodyWith = (padding: string): string =>
    JSON.stringify({
      model: benchModel,
      ...functions,
      messages: Array.from({ length: messages }, (_, index) => ({
        role: index === 0 ? "system" : index % 2 === 1 ? "user" : "assistant",
        content:
          (index === numbered ? `${serialMark} ` : "") + prose(index, sizeOf(index)) + (index === 0 ? padding : ""),
      })),
      max_tokens: stream?.tokens ?? 64,
      temperature: 0.7,
      ...(stream ? { stream: true, stop: `${streamMark}${stream.tokens},${stream.gapMs}` } : {}),
    });
  const missing = bodyBytes - bodyWith("").length;
  if (missing < 0) throw new RangeError(`${messages} messages do not fit in ${bodyBytes} bytes`);
  return bodyWith("x".repeat(missing));
}

const [descriptionBytes, parameterBytes, parametersOfTool] = [1_000, 120, 8];

function toolOf(index: number): object {
  const properties = Object.fromEntries(
    Array.from({ length: parametersOfTool }, (_, at) => {
      const description = prose(1_000 + parametersOfTool * index + at, parameterBytes);
      return [`parameter_${at}`, { type: "string", description, enum: ["one", "other"] }];
    }),
  );
  const parameters = { type: "object", properties, required: ["parameter_0"] };
  const description = prose(500 + index, descriptionBytes);
  return { type: "function", function: { name: `function_${index}`, description, parameters } };
}

/** Lines of words, each with one quoted, so that their JSON has as many escapes as that of ordinary text. */
function prose(id: number, sizeBytes: number): string {
  const words = blockText(id + 1, Math.ceil(sizeBytes / 4)).split(" ");
  const lines: string[] = [];
  for (let at = 0; at < words.length; at += wordsPerLine) {
    const [first = "", ...rest] = words.slice(at, at + wordsPerLine);
    lines.push([`"${first}"`, ...rest].join(" "));
  }
  const text = lines.join("\n");
  const escapes = JSON.stringify(text).length - 2 - text.length;
  return text.slice(0, sizeBytes - escapes);
}
