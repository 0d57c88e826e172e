/** The command was called incorrectly. Its message is for the caller. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}
