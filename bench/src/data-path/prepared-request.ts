import { blockText } from "@espalier/workload";

/**
 * How an answer is to be streamed. Absent means one JSON object. It is told in a field that every router passes on, also
 * one that writes the body anew, renames some fields, and drops headers and fields that it does not know.
 */
export interface StreamShape {
  /** As many as the bench's engine has in a stream. */
  readonly tokens: number;
  /** Time between two tokens; 0 for as fast as they go. */
  readonly gapMs: number;
}

export interface RequestShape {
  /** Of the body, exactly. */
  readonly bodyBytes: number;
  /** Messages of the chat, the first one by the system, the others by user and assistant in turn. */
  readonly messages: number;
  readonly stream?: StreamShape;
  /** Functions that the model may call, of about 2.7 KB each, as agents bring them. */
  readonly tools?: number;
  /** Makes the last message so long, in bytes, and puts the number there: the others are a conversation that goes on. */
  readonly lastMessageBytes?: number;
}

/** The bytes of a whole request, with a place for a number that makes each one sent a different prompt. */
export interface PreparedRequest {
  readonly bytes: Buffer;
  readonly serialAt: number;
}

/** Stands in the field `stop` before the shape of the stream, as in `stream 48,10`. */
const streamMark = "stream ";
export const servedModel = "bench-model";

/** Of the number in a request. */
export const serialDigits = 12;
const serialMark = "0".repeat(serialDigits);
const wordsPerLine = 14;
/** Room for the fields beside the messages, and for what a message has beside its content. */
const fieldBytes = 192;
const messageBytes = 48;

/**
 * A chat completion request as a client library sends it. The number stands at the start of the first message, so that
 * two requests share no prefix of any length, unless the shape puts it in the last one.
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

/** Writes a number over the digits of the one before. @param serial a safe integer, of which 12 digits count */
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
      model: servedModel,
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

/** Lines of words with a quoted one in each, so that the JSON of it has as many escapes as that of ordinary text. */
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
