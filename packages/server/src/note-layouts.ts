import { demandNoteLayout, rentNoteLayout } from "@espalier/routing";
import { adminNoteLayout } from "./admin/admin-peers.ts";
import { questionNoteLayout } from "./admin/past-decisions.ts";
import { releaseNoteLayout } from "./mesh/fleet-watch.ts";
import { spendNoteLayout } from "./overflow/overflow-spend.ts";

/** What notes have behind their version, by key, in the notation of PROTOCOL.md. */
export const noteLayouts: Readonly<Record<string, string>> = {
  rents: rentNoteLayout,
  demand: demandNoteLayout,
  overflow: spendNoteLayout,
  question: questionNoteLayout,
  answer: questionNoteLayout,
  admin: adminNoteLayout,
  release: releaseNoteLayout,
};
