import { EspalierError, isJsonObject, type JsonObject } from "@espalier/core";
import { formatPath, type Path, parseYaml } from "@espalier/server";

/** A configuration, and where its values stand. */
interface Embedded {
  readonly tree: JsonObject;
  /** What it is called where it stands, such as `custom.yaml`. */
  readonly name: string;
  locate(path: Path): string | undefined;
}

/** What is looked for. */
interface Wanted {
  /** Its name, for people. */
  readonly what: string;
  /** Stands in every text that has one. */
  readonly marker: string;
  isOne(section: JsonObject, name: string): boolean;
  /** @returns what to say of a file without one, from its first section */
  refuse(section: JsonObject | undefined): string;
}

/**
 * Finds the configuration in a file: the file itself, one document of several, or a part of a chart's values, a ConfigMap or a
 * manifest. Of several, the chart's `pluginsConfigFile` names one.
 *
 * @throws EspalierError `config_invalid` when there is none, or not one
 */
export function findEmbedded(text: string, file: string, wanted: Wanted): Embedded {
  const documents = documentsOf(text).map((part) => parseYaml(part, file));
  const selected = new Set<unknown>();
  const found = documents.flatMap((document) => embeddedIn(document, [], document.value));
  const [only, another] = found.length > 1 ? found.filter(({ name }) => selected.has(name)) : found;
  if (only && !another) return only;
  const [first] = documents.map(({ value }) => value).filter(isJsonObject);
  const names = found.map(({ name }) => name).join(", ");
  const several = `there are ${found.length} ${wanted.what}s in it (${names}); give one of them`;
  throw new EspalierError("config_invalid", `${file}: ${found.length > 1 ? several : wanted.refuse(first)}`);

  /** Every configuration at or below a value, as a section or as text. */
  function embeddedIn(document: ReturnType<typeof parseYaml>, path: Path, value: unknown): readonly Embedded[] {
    const name = String(path.at(-1) ?? file);
    if (typeof value === "string" && path.length > 0 && value.includes(wanted.marker)) {
      const inner = parseYaml(value, `${file}, ${formatPath(path)}`);
      const isWanted = isJsonObject(inner.value) && wanted.isOne(inner.value, name);
      return isWanted ? [{ tree: inner.value as JsonObject, name, locate: (at) => inner.locate(at) }] : [];
    }
    if (typeof value !== "object" || value === null) return [];
    if (isJsonObject(value)) {
      if (wanted.isOne(value, name)) {
        return [{ tree: value, name, locate: (at) => document.locate([...path, ...at]) }];
      }
      if (value.pluginsConfigFile !== undefined) selected.add(value.pluginsConfigFile);
    }
    return Object.entries(value).flatMap(([key, each]) =>
      embeddedIn(document, [...path, Array.isArray(value) ? Number(key) : key], each),
    );
  }
}

/** The documents of a file, each behind as many empty lines as stand before it. */
function documentsOf(text: string): readonly string[] {
  const starts = [0, ...[...text.matchAll(/^---/gm)].map(({ index }) => index)];
  const parts = starts.map((start, at) => [start, text.slice(start, starts[at + 1])] as const);
  const written = parts.filter(([, part]) => /^(?!---)\s*[^#\s]/m.test(part));
  if (written.length < 2) return [text];
  return written.map(([start, part]) => "\n".repeat(text.slice(0, start).split("\n").length - 1) + part);
}
