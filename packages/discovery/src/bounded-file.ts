import { createHash } from "node:crypto";
import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { EspalierError } from "@espalier/common";

/** About 80,000 engines with generous labels; a larger file is a mistake, and parsing it would stall requests. */
const usualMaxBytes = 16 * 1024 * 1024;

export interface FileContent {
  readonly bytes: Buffer;
  /** SHA-256 of `bytes`, in hexadecimal. */
  readonly digest: string;
}

/**
 * Reads a regular file, and no further than its greatest size however it grows meanwhile.
 *
 * @param maxBytes 16 MiB by default
 * @throws EspalierError `config_unreadable`; its message is the same for the same cause, so it can be compared
 */
export async function readBoundedFile(path: string, maxBytes = usualMaxBytes): Promise<FileContent> {
  try {
    // Without O_NONBLOCK, opening a pipe would wait for a writer for ever.
    const handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      return await readContent(handle, path, maxBytes);
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (error instanceof EspalierError) throw error;
    const reason = (error as NodeJS.ErrnoException).code ?? String(error);
    throw new EspalierError("config_unreadable", `${path} cannot be read: ${reason}`, { cause: error });
  }
}

async function readContent(handle: FileHandle, path: string, maxBytes: number): Promise<FileContent> {
  if (!(await handle.stat()).isFile()) throw new EspalierError("config_unreadable", `${path} is not a regular file`);
  const hash = createHash("sha256");
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  // `end` is inclusive, so a file that is too large gives one byte more than the limit.
  for await (const chunk of handle.createReadStream({ start: 0, end: maxBytes, autoClose: false })) {
    sizeBytes += chunk.length;
    if (sizeBytes > maxBytes) {
      throw new EspalierError("config_unreadable", `${path} is larger than ${maxBytes} bytes`);
    }
    hash.update(chunk);
    chunks.push(chunk);
  }
  return { bytes: Buffer.concat(chunks, sizeBytes), digest: hash.digest("hex") };
}
