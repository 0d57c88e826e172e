import type { Alias, SectionNotes } from "./schema/container.ts";

/** The further names of a key of a section. */
export function aliasesOf({ aliases }: SectionNotes, key: string): readonly Alias[] {
  return aliases !== undefined && Object.hasOwn(aliases, key) ? (aliases[key] ?? []) : [];
}

/** Under which names a key may be written in a file, the key itself first. */
export function writtenNames(notes: SectionNotes, key: string): readonly string[] {
  const aliases = aliasesOf(notes, key);
  return aliases.length === 0 ? [key] : [...new Set([key, ...aliases.map(({ name }) => name)])];
}
