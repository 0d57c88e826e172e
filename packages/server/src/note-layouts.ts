import { demandNoteLayout, rentNoteLayout, roleNoteLayout, timesNoteLayout } from "@espalier/routing";
import { adminNoteLayout } from "./admin/admin-peers.ts";
import { questionNoteLayout } from "./admin/past-decisions.ts";
import { releaseNoteLayout } from "./mesh/fleet-watch.ts";
import { spendNoteLayout } from "./overflow/overflow-spend.ts";

/** What notes have behind their version, by key, in the notation of PROTOCOL.md. */
export const noteLayouts: Readonly<Record<string, string>> = {
  "times/<model>": timesNoteLayout,
  rents: rentNoteLayout,
  demand: demandNoteLayout,
  overflow: spendNoteLayout,
  "roles/<model>": roleNoteLayout,
  question: questionNoteLayout,
  answer: questionNoteLayout,
  admin: adminNoteLayout,
  release: releaseNoteLayout,
};
