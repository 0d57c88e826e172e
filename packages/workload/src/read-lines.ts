import { createReadStream } from "node:fs";
import { open } from "node:fs/promises";
import { pipeline, type Readable } from "node:stream";
import { createGunzip } from "node:zlib";
import { EspalierError } from "@espalier/common";

/** The longest line of a trace, in bytes. */
export const maxLineBytes = 16 * 1024 * 1024;

const newline = 0x0a;

/**
 * Streams the lines of a text file, gzipped or not (told by its first bytes), without their line ends.
 *
 * @throws EspalierError `trace_unreadable` when the file cannot be read or is damaged, `trace_invalid` for a line over
 *   `maxLineBytes`
 */
export async function* readLines(path: string): AsyncGenerator<string, void, undefined> {
  let line = 1;
  const invalid = (problem: string): EspalierError =>
    new EspalierError("trace_invalid", `${path}:${line}: ${problem}`, { param: "line" });
  let pieces: Buffer[] = [];
  let pieceBytes = 0;
  const keep = (piece: Buffer): void => {
    pieceBytes += piece.length;
    if (pieceBytes > maxLineBytes) throw invalid(`the line is longer than ${maxLineBytes} bytes`);
    pieces.push(piece);
  };
  const takeLine = (): string => {
    const text = Buffer.concat(pieces, pieceBytes).toString("utf8");
    pieces = [];
    pieceBytes = 0;
    return text.endsWith("\r") ? text.slice(0, -1) : text;
  };
  try {
    for await (const chunk of await openText(path)) {
      let from = 0;
      for (let end = chunk.indexOf(newline); end !== -1; end = chunk.indexOf(newline, from)) {
        keep(chunk.subarray(from, end));
        yield takeLine();
        line += 1;
        from = end + 1;
      }
      keep(chunk.subarray(from));
    }
    if (pieceBytes > 0) yield takeLine();
  } catch (error) {
    if (error instanceof EspalierError) throw error;
    const reason = error instanceof Error ? error.message : String(error);
    throw new EspalierError("trace_unreadable", `Cannot read ${path}: ${reason}`, { cause: error });
  }
}

async function openText(path: string): Promise<AsyncIterable<Buffer>> {
  const magic = Buffer.alloc(2);
  const file = await open(path);
  try {
    await file.read(magic, 0, 2, 0);
  } finally {
    await file.close();
  }
  const bytes: Readable = createReadStream(path);
  // The iteration reports the errors of either stream; without the callback they would be thrown a second time.
  return magic[0] === 0x1f && magic[1] === 0x8b ? pipeline(bytes, createGunzip(), () => {}) : bytes;
}
