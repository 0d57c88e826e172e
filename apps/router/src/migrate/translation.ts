import { isJsonObject } from "@espalier/core";
import { policyCatalogue } from "@espalier/policies";
import { formatPath, type Path } from "@espalier/server";
import type { MigrationEntry } from "./migration.ts";
import { ourSetting } from "./our-settings.ts";

/** Whether a policy of ours takes an option. */
export const takesOption = (policy: unknown, option: string): boolean =>
  Object.entries(policyCatalogue).some(
    ([name, { options }]) => name === policy && options.some((each) => each.name === option),
  );

/** What an entry says; the place is found from the path. */
export interface Remark extends Omit<MigrationEntry, "theirs" | "plugin" | "place"> {
  /** A path in their file, or words for what the file leaves out. */
  readonly theirs: Path | string;
  /** The plugin that the thing belongs to. */
  readonly plugin?: { readonly type: string };
}

/** Our configuration while it is made, and what became of theirs. */
export class Translation {
  readonly settings: Record<string, unknown> = {};
  readonly entries: MigrationEntry[] = [];
  readonly #locate: (path: Path) => string | undefined;

  /** @param locate finds a path in their file */
  constructor(locate: (path: Path) => string | undefined = () => undefined) {
    this.#locate = locate;
  }

  remark({ theirs, plugin, ...rest }: Remark): void {
    const place = typeof theirs === "string" ? undefined : this.#locate(theirs);
    this.entries.push({
      ...rest,
      theirs: typeof theirs === "string" ? theirs : formatPath(theirs),
      ...(plugin === undefined ? {} : { plugin: plugin.type }),
      ...(place === undefined ? {} : { place }),
    });
  }

  /** Says that nothing of ours corresponds to a thing. */
  missing(theirs: Remark["theirs"], why: string, instead: string, plugin?: Remark["plugin"]): void {
    this.remark({ theirs, ...(plugin === undefined ? {} : { plugin }), outcome: "missing", why, instead });
  }

  /** @param path keys with dots between them */
  get(path: string): unknown {
    let value: unknown = this.settings;
    for (const key of path.split(".")) value = isJsonObject(value) ? value[key] : undefined;
    return value;
  }

  /** Sets what is not set yet. */
  set(path: string, value: unknown): void {
    const keys = path.split(".");
    const last = keys.pop() ?? "";
    let section = this.settings;
    for (const key of keys) {
      section[key] ??= {};
      section = section[key] as Record<string, unknown>;
    }
    section[last] ??= value;
  }

  /** Sets a value of theirs, and says what became of it. The first of two values stands. */
  translate(
    path: string,
    value: unknown,
    { theirs, plugin, ours, why }: Pick<Remark, "theirs" | "plugin" | "ours" | "why">,
  ): void {
    const before = this.get(path);
    this.set(path, value);
    const own = {
      theirs,
      ...(plugin === undefined ? {} : { plugin }),
      ours: ours ?? `\`${path}: ${shown(this.get(path))}\``,
    };
    if (before !== undefined && before !== value) {
      this.remark({ ...own, outcome: "differs", why: `it is ${shown(value)}, and there is one value for all` });
    } else
      this.remark({ ...own, outcome: why === undefined ? "same" : "differs", ...(why === undefined ? {} : { why }) });
  }

  /** A number, or what a setting of ours takes that is nearest to it. */
  translateNumber(path: string, value: unknown, from: Pick<Remark, "theirs" | "plugin" | "ours" | "why">): void {
    if (typeof value !== "number" || !Number.isFinite(value)) {
      this.missing(from.theirs, "not a number", `set \`${path}\``, from.plugin);
      return;
    }
    const { min, max, isWhole } = ourSetting(path);
    const nearest = Math.min(max, Math.max(min, isWhole ? Math.round(value) : value));
    const why = nearest === value ? {} : { why: `${value} is not a value that it takes` };
    this.translate(path, nearest, { ...from, ...why });
  }
}

const shown = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));
