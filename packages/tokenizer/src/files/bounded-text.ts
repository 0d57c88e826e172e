import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { EspalierError } from "@espalier/common";

/**
 * Reads a text file of at most `maxBytes`, and no further than that however the file grows meanwhile.
 *
 * @returns undefined when there is no such file
 * @throws EspalierError `config_unreadable` when it is there but cannot be read, or is too large
 */
export async function readBoundedText(path: string, maxBytes: number): Promise<string | undefined> {
  try {
    // Without O_NONBLOCK, opening a pipe would wait for a writer for ever.
    const handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      if (!(await handle.stat()).isFile())
        throw new EspalierError("config_unreadable", `${path} is not a regular file`);
      const chunks: Buffer[] = [];
      let sizeBytes = 0;
      // `end` is inclusive, so a file that is too large gives one byte more than the limit.
      for await (const chunk of handle.createReadStream({ start: 0, end: maxBytes, autoClose: false })) {
        sizeBytes += chunk.length;
        if (sizeBytes > maxBytes) {
          throw new EspalierError(
            "config_unreadable",
            `${path} is larger than ${maxBytes} bytes: is it the right file?`,
          );
        }
        chunks.push(chunk);
      }
      return Buffer.concat(chunks, sizeBytes).toString("utf8");
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (error instanceof EspalierError) throw error;
    const reason = (error as NodeJS.ErrnoException).code ?? String(error);
    if (reason === "ENOENT") return undefined;
    throw new EspalierError("config_unreadable", `${path} cannot be read: ${reason}`, { cause: error });
  }
}
