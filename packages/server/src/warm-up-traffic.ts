import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { parentPort } from "node:worker_threads";
import { systemAfterPoll } from "@espalier/core";

// The program of the thread that has the engines and the clients of a warm-up.

/** Several, so that there is a choice. */
const engineCount = 4;
/** V8 goes on compiling for some 20,000 requests; these take what the first ones cost most, in half a second. */
const requestCount = 400;
/** Requests under way. */
const concurrency = 8;
const shortBytes = 4_096;
const longBytes = 49_152;
const chunkCount = 16;

const model = "warm-up";
const usage = { prompt_tokens: 64, completion_tokens: chunkCount, total_tokens: 64 + chunkCount };
const eventOf = (fields: object): string =>
  `data: ${JSON.stringify({ id: "warm-up", object: "chat.completion.chunk", model, ...fields })}\n\n`;
const chunkOf = (text: string): string => `${text.length.toString(16)}\r\n${text}\r\n`;
const piece = chunkOf(eventOf({ choices: [{ index: 0, delta: { content: "warm" }, finish_reason: null }] }));
const headOf = (...lines: readonly string[]): string => `${lines.join("\r\n")}\r\n\r\n`;
const statusLine = "HTTP/1.1 200 OK";
const streamHead = headOf(statusLine, "content-type: text/event-stream", "transfer-encoding: chunked");
const lastChunk = "0\r\n\r\n";
const streamEnd = chunkOf(`${eventOf({ choices: [], usage })}data: [DONE]\n\n`) + lastChunk;
const whole = JSON.stringify({
  id: "warm-up",
  object: "chat.completion",
  model,
  choices: [{ index: 0, message: { role: "assistant", content: "warm" }, finish_reason: "stop" }],
  usage,
});
const wholeAnswer = headOf(statusLine, "content-type: application/json", `content-length: ${whole.length}`) + whole;

/** Calls back with each whole request or answer; the next one begins only after that. */
function readMessages(socket: Socket, onMessage: (text: string) => void): void {
  let text = "";
  socket.setEncoding("latin1");
  socket.on("data", (more: string) => {
    text += more;
    if (!isWhole(text)) return;
    const message = text;
    text = "";
    onMessage(message);
  });
}

function isWhole(text: string): boolean {
  const headEnd = text.indexOf("\r\n\r\n");
  if (headEnd < 0) return false;
  const head = text.slice(0, headEnd);
  if (/^transfer-encoding: chunked/im.test(head)) return text.endsWith(lastChunk);
  const [, length = "0"] = /^content-length: (\d+)/im.exec(head) ?? [];
  return text.length >= headEnd + 4 + Number(length);
}

/** Each chunk in a turn of its own, as engines send tokens. */
async function stream(socket: Socket): Promise<void> {
  socket.write(streamHead);
  for (let sent = 0; sent < chunkCount; sent++) {
    socket.write(piece);
    await systemAfterPoll();
  }
  socket.write(streamEnd);
}

function createEngine(): Promise<Server> {
  const server = createServer((socket) => {
    socket.setNoDelay(true);
    socket.on("error", () => {});
    readMessages(socket, (request) => {
      if (request.includes('"stream":true')) void stream(socket);
      else socket.write(wholeAnswer);
    });
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server)));
}

/** @param at number of the request, which determines its kind; every prompt is one of its own */
function requestOf(at: number): string {
  const content = `${at} ${"warm up ".repeat((at % 2 === 0 ? shortBytes : longBytes) / 8)}`;
  const isChat = at % 8 < 6;
  const prompt = isChat ? { messages: [{ role: "user", content }] } : { prompt: content };
  const body = JSON.stringify({ model, stream: at % 4 < 2, max_tokens: 64, ...prompt });
  const path = isChat ? "/v1/chat/completions" : "/v1/completions";
  const fields = ["host: warm-up", "content-type: application/json", `content-length: ${body.length}`];
  return headOf(`POST ${path} HTTP/1.1`, ...fields) + body;
}

function sendAll(port: number, done: () => void): void {
  let next = 0;
  let underWay = concurrency;
  for (let each = 0; each < concurrency; each++) {
    const socket = connect(port, "127.0.0.1");
    const send = (): void => {
      if (next < requestCount) socket.write(requestOf(next++));
      else if (--underWay === 0) done();
    };
    socket.setNoDelay(true);
    socket.once("connect", send);
    readMessages(socket, send);
  }
}

const engines = await Promise.all(Array.from({ length: engineCount }, createEngine));
parentPort?.once("message", (port: number) => sendAll(port, () => process.exit()));
parentPort?.postMessage(engines.map((engine) => `http://127.0.0.1:${(engine.address() as AddressInfo).port}`));
