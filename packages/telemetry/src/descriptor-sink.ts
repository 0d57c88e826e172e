import { destination } from "pino";

/** Takes the logger's lines. */
export interface Sink {
  write(line: string): void;
  /** `report` is told how many lines were dropped, once what was buffered is out. */
  onDropped(report: (lines: number) => void): void;
}

/**
 * Writes to a file descriptor in the background, in order, and flushes when the process exits. A failing descriptor
 * (full disk, closed terminal) does not end the process: its lines stay buffered, up to the limit, and are tried again
 * with the next line.
 */
export function openDescriptorSink(descriptor: number, maxBufferedBytes = 4 * 1024 * 1024): Sink {
  const stream = destination({ dest: descriptor, sync: false, maxLength: maxBufferedBytes });
  stream.on("error", () => {});
  return {
    write: (line) => stream.write(line),
    onDropped(report) {
      let dropped = 0;
      stream.on("drop", () => dropped++);
      stream.on("drain", () => {
        if (dropped === 0) return;
        const lines = dropped;
        dropped = 0;
        report(lines);
      });
    },
  };
}
