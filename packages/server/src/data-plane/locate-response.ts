import { EspalierError } from "@espalier/common";
import type { RouterContext } from "./router-context.ts";

/**
 * Finds the engine that holds a stored response: from memory, or, when this router did not see it made (another
 * replica did, or it was restarted since), by asking the engines.
 *
 * @param param the field that names the response, for the error; undefined when the path does
 * @returns the engine's id
 * @throws EspalierError `response_not_found`, or `overloaded`
 */
export async function locateResponse(
  context: RouterContext,
  responseId: string,
  param?: "previous_response_id",
): Promise<string> {
  const { storedResponses, responseFinder } = context;
  const known = storedResponses.holderOf(responseId);
  if (known !== undefined) return known;
  const found = await responseFinder.find(responseId);
  if (found === undefined) {
    throw new EspalierError("response_not_found", "No engine holds this response.", param && { param });
  }
  storedResponses.remember(responseId, found);
  return found;
}
