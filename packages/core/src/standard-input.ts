/**
 * Watches the end of standard input, which comes when the program that holds the other end of its pipe closes it, or is
 * gone: on every system, and however it ended. Watching does not keep the process alive. What arrives is dropped.
 *
 * @param ended is called once
 */
export function onStdinEnd(ended: () => void): void {
  process.stdin.once("close", ended);
  // A pipe that cannot be read closes, too.
  process.stdin.on("error", () => {});
  process.stdin.resume();
  process.stdin.unref?.();
}
