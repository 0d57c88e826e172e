/** What has a page of its own within this one: its address is the fragment. */
export type DetailKind = "engine" | "decision" | "prefix" | "programs";

export interface DetailAddress {
  readonly kind: DetailKind;
  /** Of programs what is looked for, if anything. */
  readonly key: string;
}

/** All programs. */
export const programsLink = "#programs";

export const detailLink = (kind: DetailKind, key: string): string => `#${kind}/${encodeURIComponent(key)}`;

/** A row of the overview, which a fragment leads to without a page of its own. */
export type PlaceKind = "engine" | "router" | "event";

/** Id of a row's element. */
export const placeId = (kind: PlaceKind, key: string): string => `row/${kind}/${key}`;

export const placeLink = (kind: PlaceKind, key: string): string => `#row/${kind}/${encodeURIComponent(key)}`;

/** @returns undefined for the overview, and for anything that is no address of a detail */
export function readDetailLink(fragment: string): DetailAddress | undefined {
  if (fragment === programsLink) return { kind: "programs", key: "" };
  const [, kind, text = ""] = /^#(engine|decision|prefix|programs)\/(.+)$/.exec(fragment) ?? [];
  if (kind === undefined) return undefined;
  try {
    return { kind: kind as DetailKind, key: decodeURIComponent(text) };
  } catch {
    return undefined;
  }
}
