import { isIP } from "node:net";

/** The records of a name. */
export interface DnsRecords {
  readonly a?: readonly string[];
  readonly aaaa?: readonly string[];
  readonly srv?: readonly { readonly name: string; readonly port: number }[];
}

export interface DnsQuery {
  readonly id: number;
  /** In lower case, without a dot at the end. */
  readonly name: string;
  readonly type: number;
  /** The question as it came, to be repeated in the answer. */
  readonly question: Buffer;
  /** The longest answer that fits a datagram, in bytes. */
  readonly maxBytes: number;
}

const recordTypes = { a: 1, aaaa: 28, srv: 33 } as const;
const headerBytes = 12;
const ttlSeconds = 1;

/** Reads the one question of a query (RFC 1035, section 4.1). @throws RangeError for what is cut short */
export function readQuery(message: Buffer): DnsQuery {
  const labels: string[] = [];
  let at = headerBytes;
  for (let length = message.readUInt8(at); length > 0; length = message.readUInt8(at)) {
    labels.push(message.toString("latin1", at + 1, at + 1 + length));
    at += 1 + length;
  }
  const end = at + 5;
  // Whoever adds an OPT record (RFC 6891) takes longer datagrams; 1,232 bytes pass everywhere.
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
export function writeAnswer(query: DnsQuery, code: number, datas: readonly Buffer[], isCut = false): Buffer {
  const header = Buffer.alloc(headerBytes);
  header.writeUInt16BE(query.id, 0);
  // A response, authoritative, recursion asked for and available.
  header.writeUInt16BE(0x8580 | (isCut ? 0x0200 : 0) | code, 2);
  header.writeUInt16BE(1, 4);
  header.writeUInt16BE(isCut ? 0 : datas.length, 6);
  if (isCut) return Buffer.concat([header, query.question]);
  return Buffer.concat([header, query.question, ...datas.map((data) => writeRecord(query.type, data))]);
}

function writeRecord(type: number, data: Buffer): Buffer {
  const record = Buffer.alloc(12);
  // The name is a pointer to that of the question.
  record.writeUInt16BE(0xc000 | headerBytes, 0);
  record.writeUInt16BE(type, 2);
  record.writeUInt16BE(1, 4);
  record.writeUInt32BE(ttlSeconds, 6);
  record.writeUInt16BE(data.length, 10);
  return Buffer.concat([record, data]);
}

/** The data of the records of one type. */
export function dataOf({ a = [], aaaa = [], srv = [] }: DnsRecords, type: number): readonly Buffer[] {
  if (type === recordTypes.a) return a.map((address) => Buffer.from(address.split(".").map(Number)));
  if (type === recordTypes.aaaa) return aaaa.map(writeIpv6);
  if (type === recordTypes.srv)
    return srv.map(({ name, port }) => Buffer.concat([writeService(port), writeName(name)]));
  return [];
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
  if (isIP(address) !== 6) throw new RangeError(`${address} is no IPv6 address`);
  const [left = "", right] = address.split("::");
  const groups = (text = ""): string[] => text.split(":").filter((group) => group !== "");
  const [head, tail] = [groups(left), groups(right)];
  const zeros = Array.from({ length: right === undefined ? 0 : 8 - head.length - tail.length }, () => "0");
  const data = Buffer.alloc(16);
  for (const [at, group] of [...head, ...zeros, ...tail].entries())
    data.writeUInt16BE(Number.parseInt(group, 16), at * 2);
  return data;
}
