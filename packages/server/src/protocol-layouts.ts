import {
  bulkFrameLayouts,
  documentFrameLayouts,
  linkFrameLayouts,
  membershipFrameLayouts,
  redisLayouts,
  storedPieceLayout,
} from "@espalier/mesh";
import { creditNoteLayout, demandNoteLayout, roleNoteLayout, timesNoteLayout } from "@espalier/routing";
import { loadFrameLayout, noteFrameLayout, usageFrameLayout } from "@espalier/shared-tree";
import { adminNoteLayout } from "./admin/admin-peers.ts";
import { questionNoteLayout } from "./decisions/past-decisions.ts";
import { releaseNoteLayout } from "./mesh/fleet-watch.ts";
import { abortNoteLayout } from "./orders/shared-aborts.ts";
import { moveNoteLayout } from "./orders/shared-moves.ts";
import { spendNoteLayout } from "./overflow/overflow-spend.ts";
import { beginningNoteLayout } from "./programs/conversations.ts";
import { programNoteLayout } from "./programs/program-note.ts";

/** What notes have behind their version, by key. */
const noteLayouts = {
  "times/<model>": timesNoteLayout,
  credits: creditNoteLayout,
  demand: demandNoteLayout,
  overflow: spendNoteLayout,
  "roles/<model>": roleNoteLayout,
  question: questionNoteLayout,
  answer: questionNoteLayout,
  admin: adminNoteLayout,
  release: releaseNoteLayout,
  "programs/<number>": programNoteLayout,
  "beginnings/<number>": beginningNoteLayout,
  aborts: abortNoteLayout,
  moves: moveNoteLayout,
};

/** Fields of what routers send each other, in the notation of docs/reference/wire-layouts.md: by part of the protocol, then by name. */
export const protocolLayouts: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  membership: membershipFrameLayouts,
  documents: documentFrameLayouts,
  bulk: bulkFrameLayouts,
  load: { "load frame": loadFrameLayout },
  "frames of notes": { "1 notes": noteFrameLayout, "2 usage": usageFrameLayout },
  notes: noteLayouts,
  links: linkFrameLayouts,
  redis: { ...redisLayouts, "stored piece": storedPieceLayout },
};
