import type { ReplicatedDocuments } from "@espalier/replication";

/** Documents as those see them who let browsers follow them. */
export type ServedDocuments = Pick<ReplicatedDocuments, "state" | "diff" | "onUpdate">;
