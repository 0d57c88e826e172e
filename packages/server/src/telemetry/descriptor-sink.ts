import { write, writeSync } from "node:fs";
import type { Scheduler } from "@espalier/core";

export interface DescriptorSinkOptions {
  readonly descriptor: number;
  /** Maximum bytes that wait for a slow descriptor; 4 MiB by default. */
  readonly maxBufferedBytes?: number | undefined;
  readonly scheduler: Scheduler;
  /** Called with the number of lines that are dropped, when they are. */
  readonly dropped: (lines: number) => void;
  /** Called with the number of lines dropped since, once all waiting lines are written again. */
  readonly recovered: (lines: number) => void;
}

/** Bytes that are written at once, as long as no single line is longer. */
const chunkBytes = 65_536;
/** A descriptor that takes no more at the moment is tried again after so many milliseconds. */
const retryMs = 20;
/** The same while the process exits, and the number of attempts: then it exits. */
const exitRetryMs = 5;
const exitAttempts = 40;
const newline = 10;

/**
 * Writes lines to a file descriptor in the background, in order, and what is left when the process exits. Lines are dropped
 * when too many bytes wait, as for a pipe that is not read, and when they cannot be written: the disk is full, the terminal
 * or pipe is closed. The next lines are tried again. No failure throws, and none keeps the process from ending.
 */
export class DescriptorSink {
  readonly #options: DescriptorSinkOptions;
  readonly #maxBytes: number;
  /** The chunk being written, from its first byte that is not yet. */
  #chunk: Buffer = Buffer.alloc(0);
  #lines: string[] = [];
  /** Of the chunk and the lines. */
  #waitingBytes = 0;
  /** The system has the chunk; while the process exits, nobody awaits its answer. */
  #isWriting = false;
  #isRetrying = false;
  /** The last byte that was written does not end a line. */
  #isCut = false;
  #dropped = 0;

  constructor(options: DescriptorSinkOptions) {
    this.#options = options;
    this.#maxBytes = options.maxBufferedBytes ?? 4 * 1024 * 1024;
    process.on("exit", () => this.#writeLast());
  }

  write(line: string): void {
    const bytes = Buffer.byteLength(line);
    if (this.#waitingBytes + bytes > this.#maxBytes) {
      this.#drop(1);
      return;
    }
    this.#lines.push(line);
    this.#waitingBytes += bytes;
    this.#pump();
  }

  #pump(): void {
    if (this.#isWriting || this.#isRetrying || !this.#hasChunk()) return;
    this.#isWriting = true;
    write(this.#options.descriptor, this.#chunk, (error, count) => {
      this.#isWriting = false;
      if (!error) this.#written(count);
      else if (isBusy(error)) return this.#retry();
      else this.#fail();
      if (this.#waitingBytes > 0) this.#pump();
      else if (!error) this.#report();
    });
  }

  #retry(): void {
    this.#isRetrying = true;
    this.#options.scheduler.after(retryMs, () => {
      this.#isRetrying = false;
      this.#pump();
    });
  }

  /** Takes the next lines when the chunk before them is written. @returns whether there are bytes to write */
  #hasChunk(): boolean {
    if (this.#chunk.length > 0) return true;
    if (this.#lines.length === 0) return false;
    let bytes = 0;
    let count = 0;
    for (; count < this.#lines.length && (count === 0 || bytes < chunkBytes); count++)
      bytes += Buffer.byteLength(this.#lines[count]!);
    const text = this.#lines.splice(0, count).join("");
    if (this.#isCut) this.#waitingBytes += 1;
    this.#chunk = Buffer.from(this.#isCut ? `\n${text}` : text);
    return true;
  }

  #written(count: number): void {
    this.#waitingBytes -= count;
    if (count > 0) this.#isCut = this.#chunk[count - 1] !== newline;
    this.#chunk = this.#chunk.subarray(count);
  }

  /** The rest of the chunk cannot be written. */
  #fail(): void {
    // A newline in front only ends a line of which the rest is written, or was dropped before.
    const lines = this.#chunk.subarray(1).filter((byte) => byte === newline).length;
    this.#waitingBytes -= this.#chunk.length;
    this.#chunk = Buffer.alloc(0);
    this.#drop(lines);
  }

  #drop(lines: number): void {
    this.#dropped += lines;
    this.#options.dropped(lines);
  }

  #report(): void {
    const lines = this.#dropped;
    this.#dropped = 0;
    if (lines > 0) this.#options.recovered(lines);
  }

  #writeLast(): void {
    // What the system has is written while the process ends, or never.
    if (this.#isWriting) this.#chunk = Buffer.alloc(0);
    for (let attempts = 0; attempts < exitAttempts && this.#hasChunk(); ) {
      try {
        this.#written(writeSync(this.#options.descriptor, this.#chunk));
      } catch (error) {
        if (!isBusy(error as NodeJS.ErrnoException)) return;
        attempts += 1;
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, exitRetryMs);
      }
    }
  }
}

const isBusy = ({ code }: NodeJS.ErrnoException): boolean => code === "EAGAIN" || code === "EBUSY" || code === "EINTR";
