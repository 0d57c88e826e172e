import { watch } from "node:fs";
import type { Logger } from "@espalier/common";

/**
 * Calls `onChange` whenever an entry of the folder is written, created, removed or renamed. When the folder cannot be
 * watched, which includes running out of inotify watches, that is logged and `onChange` stays silent.
 *
 * @returns a function that ends the watch; calling it twice does nothing
 */
export function watchFolder(path: string, onChange: () => void, logger: Logger): () => void {
  const warn = (error: unknown): void =>
    logger.warn("folder not watched; changes are seen by polling", { path, error });
  try {
    const watcher = watch(path, { persistent: false }, onChange);
    watcher.on("error", (error) => {
      warn(error);
      watcher.close();
    });
    return () => watcher.close();
  } catch (error) {
    warn(error);
    return () => {};
  }
}
