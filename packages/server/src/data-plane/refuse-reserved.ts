import { EspalierError } from "@espalier/common";
import { findTransferField } from "@espalier/disaggregation";
import type { RequestView } from "@espalier/openai";

/** @throws EspalierError `reserved_field` for a body that says where engines fetch KV blocks, unless clients may */
export function refuseReserved(view: RequestView, trustsTransferFields: boolean): void {
  const reserved = trustsTransferFields ? undefined : findTransferField(view);
  if (reserved === undefined) return;
  throw new EspalierError("reserved_field", `The field ${reserved} is for a router to set.`, { param: reserved });
}
