import { createSocket } from "node:dgram";
import { once } from "node:events";
import { createServer, isIP, type Socket } from "node:net";

/** `fail`: SERVFAIL; `silent`: no answer at all. */
type DnsMode = "answer" | "fail" | "silent";

/** A DNS server on loopback, over UDP and, for long answers, over TCP on the same port. */
export interface DnsServer {
  /** `127.0.0.1:PORT` */
  readonly address: string;
  /** Received queries, answered or not. */
  readonly queryCount: number;
  /** Queries over TCP. */
  readonly tcpCount: number;
  mode: DnsMode;
  /** Sets the records of a name; undefined: the name does not exist. */
  set(name: string, records: DnsRecords | undefined): void;
  stop(): Promise<void>;
}

/** The records of a name. */
interface DnsRecords {
  readonly a?: readonly string[];
  readonly aaaa?: readonly string[];
  readonly srv?: readonly { readonly name: string; readonly port: number }[];
  /** Of each of them; 1 by default. */
  readonly ttlSeconds?: number;
}

const attempts = 20;

/** Listens on a free port. */
export async function startDnsServer(): Promise<DnsServer> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await listen();
    } catch (error) {
      // The port that is free for UDP may be in use for TCP.
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
    const { ttlSeconds, ...found } = records ?? {};
    const whole = writeAnswer(
      query,
      code,
      (code === 0 ? dataOf(found, query.type) : []).map((data) => writeRecord(query.type, data, ttlSeconds)),
    );
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

/** Over TCP, two bytes before each message are its length. */
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

interface DnsQuery {
  readonly id: number;
  /** In lower case, without a dot at the end. */
  readonly name: string;
  readonly type: number;
  /** The raw question, repeated in the answer. */
  readonly question: Buffer;
  /** The longest answer that fits a datagram, in bytes. */
  readonly maxBytes: number;
}

const recordTypes = { a: 1, aaaa: 28, srv: 33 } as const;
const headerBytes = 12;
const usualTtlSeconds = 1;

/** Reads the one question of a query (RFC 1035, section 4.1). @throws RangeError when it is truncated */
function readQuery(message: Buffer): DnsQuery {
  const labels: string[] = [];
  let at = headerBytes;
  for (let length = message.readUInt8(at); length > 0; length = message.readUInt8(at)) {
    labels.push(message.toString("latin1", at + 1, at + 1 + length));
    at += 1 + length;
  }
  const end = at + 5;
  // An OPT record (RFC 6891) allows longer datagrams; 1,232 bytes fit every path.
  const maxBytes = message.readUInt16BE(10) > 0 ? 1_232 : 512;
  return {
    id: message.readUInt16BE(0),
    name: labels.join(".").toLowerCase(),
    type: message.readUInt16BE(at + 1),
    question: message.subarray(headerBytes, end),
    maxBytes,
  };
}

/** @param code 0 without an error, 2 for a failed server, 3 for a name that does not exist */
function writeAnswer(query: DnsQuery, code: number, records: readonly Buffer[], isTruncated = false): Buffer {
  const header = Buffer.alloc(headerBytes);
  header.writeUInt16BE(query.id, 0);
  // An authoritative response, with recursion desired and available.
  header.writeUInt16BE(0x8580 | (isTruncated ? 0x0200 : 0) | code, 2);
  header.writeUInt16BE(1, 4);
  header.writeUInt16BE(isTruncated ? 0 : records.length, 6);
  if (isTruncated) return Buffer.concat([header, query.question]);
  return Buffer.concat([header, query.question, ...records]);
}

/** The data of the records of one type. */
function dataOf({ a = [], aaaa = [], srv = [] }: DnsRecords, type: number): readonly Buffer[] {
  if (type === recordTypes.a) return a.map((address) => Buffer.from(address.split(".").map(Number)));
  if (type === recordTypes.aaaa) return aaaa.map(writeIpv6);
  if (type === recordTypes.srv)
    return srv.map(({ name, port }) => Buffer.concat([writeService(port), writeName(name)]));
  return [];
}

function writeRecord(type: number, data: Buffer, ttlSeconds = usualTtlSeconds): Buffer {
  const record = Buffer.alloc(12);
  // The name is a pointer to that of the question.
  record.writeUInt16BE(0xc000 | headerBytes, 0);
  record.writeUInt16BE(type, 2);
  record.writeUInt16BE(1, 4);
  record.writeUInt32BE(ttlSeconds, 6);
  record.writeUInt16BE(data.length, 10);
  return Buffer.concat([record, data]);
}

function writeService(port: number): Buffer {
  const data = Buffer.alloc(6);
  data.writeUInt16BE(port, 4);
  return data;
}

function writeName(name: string): Buffer {
  const labels = name.split(".").map((label) => Buffer.concat([Buffer.from([label.length]), Buffer.from(label)]));
  return Buffer.concat([...labels, Buffer.from([0])]);
}

function writeIpv6(address: string): Buffer {
  if (isIP(address) !== 6) throw new RangeError(`${address} is not an IPv6 address`);
  const [left = "", right] = address.split("::");
  const groups = (text = ""): string[] => text.split(":").filter((group) => group !== "");
  const [head, tail] = [groups(left), groups(right)];
  const zeros = Array.from({ length: right === undefined ? 0 : 8 - head.length - tail.length }, () => "0");
  const data = Buffer.alloc(16);
  for (const [at, group] of [...head, ...zeros, ...tail].entries())
    data.writeUInt16BE(Number.parseInt(group, 16), at * 2);
  return data;
}
