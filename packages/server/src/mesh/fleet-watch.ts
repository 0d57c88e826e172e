import { createHash } from "node:crypto";
import {
  type Cancel,
  type Clock,
  type Logger,
  list,
  type Meter,
  readOrUndefined,
  type Scheduler,
  type Startable,
  struct,
  text,
  versioned,
} from "@espalier/core";
import { closed, type Described, nullable, Type } from "@espalier/core/schema";
import type { MemberDescription } from "@espalier/mesh";
import type { Note, NoteChannel } from "@espalier/shared-tree";

/** What a router tells the others of itself. */
export interface RouterRelease {
  /** Of the program; empty where an embedding program has not said it. */
  readonly version: string;
  /** Digests of the settings that all routers should have alike, by section. */
  readonly settings: ReadonlyMap<string, string>;
}

/** For operators: `settings` is one digest of all. */
export interface OwnRelease {
  readonly version: string;
  readonly settings: string;
}

/** What is known of another router's release. */
export const releaseDescription = closed({
  version: nullable(Type.String(), { description: "Null if not reported." }),
  settings: nullable(Type.String(), { description: "Digest of the settings that must match on all routers." }),
  differs: Type.Array(Type.String(), {
    description: "Differences from this router: `version`, or sections of the configuration.",
  }),
});

type ReleaseDescription = Described<typeof releaseDescription>;

/** A router that failed without leaving. */
export const lostRouter = closed({
  router: Type.String(),
  address: nullable(Type.String(), { description: "Last known address." }),
  sinceMs: Type.Number({ description: "Milliseconds since the Unix epoch." }),
});

export type LostRouter = Described<typeof lostRouter>;

/**
 * What is to be known of the other routers besides whether they are alive: which of them were lost lately, since the membership forgets
 * them within seconds, and whose version or settings differ from this router's.
 */
export interface FleetWatch extends Startable {
  /** Says what is in force here from now on. */
  setSettings(settings: RouterRelease["settings"]): void;
  releaseOf(router: string): ReleaseDescription;
  /** The latest last. */
  lost(): readonly LostRouter[];
}

type WatchedMember = Pick<MemberDescription, "router" | "state" | "address">;

export interface FleetWatchOptions {
  readonly notes: NoteChannel;
  readonly members: () => readonly WatchedMember[];
  readonly release: RouterRelease;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly logger: Logger;
  readonly meter: Meter;
}

/** More often than a member that is down is forgotten. */
const lookEveryMs = 1_000;
/** Routers whose release is kept. */
export const maxReleases = 256;

export function createFleetWatch(options: FleetWatchOptions): FleetWatch {
  const { notes, members, clock, scheduler, logger, meter } = options;
  let own = options.release;
  const known = new Map<string, RouterRelease>();
  const logged = new Map<string, string>();
  const lost = createLostRouters(clock);
  const gauge = meter.gauge(
    "espalier_mesh_mismatched_routers",
    "Live routers with another version, or other settings that must match on all routers.",
    ["difference"],
  );
  const unequal = { version: gauge.series("version"), settings: gauge.series("settings") };
  let cancels: readonly Cancel[] = [];

  const hear = ({ key, origin, bytes }: Note): void => {
    if (key !== noteKey) return;
    const release = readRelease(bytes);
    known.delete(origin.router);
    if (!release) return;
    if (known.size >= maxReleases) known.delete(known.keys().next().value!);
    known.set(origin.router, release);
  };
  const differsOf = (router: string): readonly string[] => {
    const other = known.get(router);
    return other ? differencesOf(own, other) : [];
  };
  const tell = (router: string, differs: readonly string[]): void => {
    const [text, before] = [differs.join(), logged.get(router) ?? ""];
    if (text === before) return;
    logged.set(router, text);
    const of = { router, version: known.get(router)?.version };
    if (differs.length > 0)
      logger.warn("router differs in version or settings", { ...of, here: own.version, in: differs });
    else logger.info("router no longer differs", of);
  };
  const look = (): void => {
    const now = members();
    lost.update(now);
    const living = now.filter(({ state }) => state === "alive" || state === "suspect").map(({ router }) => router);
    const differing = living.map((router) => ({ router, differs: differsOf(router) }));
    unequal.version.set(differing.filter(({ differs }) => differs.includes("version")).length);
    unequal.settings.set(differing.filter(({ differs }) => differs.some((name) => name !== "version")).length);
    for (const router of logged.keys()) if (!living.includes(router)) logged.delete(router);
    for (const { router, differs } of differing) tell(router, differs);
  };
  const post = (): void => {
    notes.post(noteKey, writeRelease(own), { isLasting: true });
  };

  return {
    setSettings(settings) {
      if (settingsDigest(settings) === settingsDigest(own.settings)) return;
      own = { ...own, settings };
      post();
    },
    releaseOf(router) {
      const release = known.get(router);
      return {
        version: release?.version || null,
        settings: release ? settingsDigest(release.settings) : null,
        differs: differsOf(router),
      };
    },
    lost: () => lost.list(),
    async start() {
      post();
      cancels = [notes.onNote(hear), scheduler.every(lookEveryMs, look)];
    },
    async stop() {
      for (const cancel of cancels) cancel();
    },
  };
}

/** One digest of all sections, whatever their order. */
export function settingsDigest(settings: RouterRelease["settings"]): string {
  const text = [...settings].map((entry) => entry.join()).sort();
  return createHash("sha256").update(text.join("\n")).digest("hex").slice(0, 8);
}

/** A section that only one of two versions knows is no difference in what operators have set. */
function differencesOf(own: RouterRelease, other: RouterRelease): readonly string[] {
  const differs = [...own.settings].filter(([name, digest]) => (other.settings.get(name) ?? digest) !== digest);
  return [...(own.version === other.version ? [] : ["version"]), ...differs.map(([name]) => name)];
}

/** Key of the note. */
const noteKey = "release";
const noteVersion = 1;
/** Bounds of a note: bytes of a text, sections. */
const maxTextBytes = 128;
/** Sections of a note. */
export const maxSections = 64;

const boundedText = text(maxTextBytes);
const releaseNote = versioned(
  noteVersion,
  struct({ version: boundedText, settings: list(struct({ name: boundedText, digest: boundedText }), maxSections) }),
);

export const releaseNoteLayout = releaseNote.layout;

export function writeRelease({ version, settings }: RouterRelease): Uint8Array {
  return releaseNote.encode({
    version: version.slice(0, maxTextBytes / 4),
    settings: [...settings].map(([name, digest]) => ({ name, digest })),
  });
}

/** @returns undefined for a note of another form, and for one that is too long */
export function readRelease(bytes: Uint8Array): RouterRelease | undefined {
  return readOrUndefined(() => {
    const { version, settings } = releaseNote.decode(bytes);
    return {
      version: printable(version),
      settings: new Map(settings.map(({ name, digest }) => [printable(name), digest])),
    };
  });
}

/** What others write ends in terminals and logs. */
function printable(text: string): string {
  return text.replaceAll(/[^\x20-\x7e]/g, "?");
}

/** How long a lost router is listed. */
const listedMs = 1_800_000;
/** Most lost routers; beyond it the one lost longest ago is dropped. */
const maxLost = 64;

/** Routers that failed without leaving. */
interface LostRouters {
  /** @param members the current ones; call it more often than the membership's `forgetMs` */
  update(members: readonly WatchedMember[]): void;
  /** The latest last. */
  list(): readonly LostRouter[];
}

export function createLostRouters(clock: Clock): LostRouters {
  /** Routers that were alive, and their addresses. */
  const alive = new Map<string, string | null>();
  const lost = new Map<string, LostRouter & { readonly atMs: number }>();
  return {
    update(members) {
      const states = new Map(members.map(({ router, state }) => [router, state]));
      for (const [router, address] of alive) {
        const state = states.get(router);
        if (state === "alive" || state === "suspect") continue;
        alive.delete(router);
        if (state !== "left") lost.set(router, { router, address, sinceMs: clock.wallMs(), atMs: clock.nowMs() });
      }
      for (const { router, state, address } of members) {
        if (state !== "alive") continue;
        alive.set(router, address);
        lost.delete(router);
      }
      for (const [router, { atMs }] of lost) {
        if (lost.size > maxLost || clock.nowMs() - atMs >= listedMs) lost.delete(router);
      }
    },
    list: () => [...lost.values()].map(({ atMs: _, ...router }) => router),
  };
}
