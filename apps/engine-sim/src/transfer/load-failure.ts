import { ApiError } from "../http/api-error.ts";
import type { ResolvedTransfer } from "./transfer-options.ts";

/** What vLLM does when blocks do not come: it says no more than this, or computes them. */
export function loadFailure({ onFailure }: ResolvedTransfer): ApiError | undefined {
  return onFailure === "recompute" ? undefined : new ApiError(500, "Internal server error");
}
