import { createSocket } from "node:dgram";
import { once } from "node:events";
import { createServer, type Socket } from "node:net";
import { type DnsQuery, type DnsRecords, dataOf, readQuery, writeAnswer } from "./dns-message.ts";

/** `fail`: SERVFAIL; `silent`: no answer at all. */
export type DnsMode = "answer" | "fail" | "silent";

/** A real name server on loopback, by datagrams and, for long answers, by TCP on the same port. */
export interface DnsServer {
  /** `127.0.0.1:PORT` */
  readonly address: string;
  /** Questions that have come, answered or not. */
  readonly queryCount: number;
  /** Those that came by TCP. */
  readonly tcpCount: number;
  mode: DnsMode;
  /** What a name stands for from now on; undefined: the name does not exist. */
  set(name: string, records: DnsRecords | undefined): void;
  stop(): Promise<void>;
}

const attempts = 20;

/** Listens on a free port. */
export async function startDnsServer(): Promise<DnsServer> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await listen();
    } catch (error) {
      // The port that was free for datagrams may be taken for TCP.
      if (attempt === attempts || (error as NodeJS.ErrnoException).code !== "EADDRINUSE") throw error;
    }
  }
}

async function listen(): Promise<DnsServer> {
  const zone = new Map<string, DnsRecords>();
  const udp = createSocket("udp4");
  udp.bind(0, "127.0.0.1");
  await once(udp, "listening");
  const { port } = udp.address();
  let mode: DnsMode = "answer";
  let queryCount = 0;
  let tcpCount = 0;

  const answer = (message: Buffer, isTcp: boolean): Buffer | undefined => {
    const query = tryRead(message);
    if (!query) return undefined;
    queryCount += 1;
    if (isTcp) tcpCount += 1;
    if (mode === "silent") return undefined;
    const records = zone.get(query.name);
    const code = mode === "fail" ? 2 : records ? 0 : 3;
    const whole = writeAnswer(query, code, code === 0 ? dataOf(records ?? {}, query.type) : []);
    return isTcp || whole.length <= query.maxBytes ? whole : writeAnswer(query, code, [], true);
  };
  udp.on("message", (message, { port: from, address }) => {
    const reply = answer(message, false);
    if (reply) udp.send(reply, from, address);
  });
  const sockets = new Set<Socket>();
  const tcp = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {}).on("close", () => sockets.delete(socket));
    readFrames(socket, (message) => answer(message, true));
  });
  tcp.listen(port, "127.0.0.1");
  try {
    await once(tcp, "listening");
  } catch (error) {
    udp.close();
    throw error;
  }

  return {
    address: `127.0.0.1:${port}`,
    get queryCount() {
      return queryCount;
    },
    get tcpCount() {
      return tcpCount;
    },
    get mode() {
      return mode;
    },
    set mode(next) {
      mode = next;
    },
    set(name, records) {
      if (records) zone.set(name.toLowerCase(), records);
      else zone.delete(name.toLowerCase());
    },
    async stop() {
      for (const socket of sockets) socket.destroy();
      const closed = [once(udp, "close"), once(tcp, "close")];
      udp.close();
      tcp.close();
      await Promise.all(closed);
    },
  };
}

function tryRead(message: Buffer): DnsQuery | undefined {
  try {
    return readQuery(message);
  } catch {
    return undefined;
  }
}

/** Over TCP, two bytes before each message tell its length. */
function readFrames(socket: Socket, answer: (message: Buffer) => Buffer | undefined): void {
  let unread = Buffer.alloc(0);
  socket.on("data", (chunk: Buffer) => {
    unread = Buffer.concat([unread, chunk]);
    while (unread.length >= 2 && unread.length >= 2 + unread.readUInt16BE(0)) {
      const end = 2 + unread.readUInt16BE(0);
      const reply = answer(unread.subarray(2, end));
      unread = unread.subarray(end);
      if (!reply) continue;
      const length = Buffer.alloc(2);
      length.writeUInt16BE(reply.length);
      socket.write(Buffer.concat([length, reply]));
    }
  });
}
