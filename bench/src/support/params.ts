import { parseArgs } from "node:util";
import { parseDuration } from "@espalier/core";
import { UsageError } from "./usage-error.ts";

/** A flag of a suite: how it is read, and its line in the help. */
export interface Param<Value> {
  /** How the help calls what follows the flag; undefined for a switch, which nothing follows. */
  readonly placeholder?: string;
  readonly help: string;
  /** What an absent flag says, as the help shows it. */
  readonly standard?: string;
  /**
   * @param text undefined when the flag is absent; empty for a switch that is given
   * @throws UsageError naming the flag
   */
  read(flag: string, text: string | undefined, isQuick: boolean): Value;
}

/** The flags of a suite, by name without the two hyphens. */
export type Params = Readonly<Record<string, Param<unknown>>>;

/** What the flags say. */
export type ParamValues<P extends Params> = { readonly [Name in keyof P]: P[Name] extends Param<infer V> ? V : never };

interface NumberRange {
  readonly help: string;
  readonly placeholder?: string;
  /** The value of an absent flag, and its value under `--quick` where that is another. */
  readonly standard: number;
  readonly quick?: number;
  /** The lowest whole number; 1 unless given. */
  readonly least?: number;
  readonly most: number;
}

/** A whole number. */
export function whole({ help, placeholder = "N", standard, quick = standard, least = 1, most }: NumberRange) {
  return numberParam({ help, placeholder, standard, quick }, (flag, text) => readWhole(flag, text, { least, most }));
}

/** A number above 0. */
export function positive({ help, placeholder = "S", standard, quick = standard, most }: NumberRange) {
  return numberParam({ help, placeholder, standard, quick }, (flag, text) => {
    const value = Number(text);
    if (value > 0 && value <= most) return value;
    throw new UsageError(`${flag} must be a number above 0 and at most ${most}`);
  });
}

function numberParam(
  { help, placeholder, standard, quick }: Required<Omit<NumberRange, "least" | "most">>,
  read: (flag: string, text: string) => number,
): Param<number> {
  return {
    ...{ placeholder, help, standard: standard.toLocaleString("en-US") },
    read: (flag, text, isQuick) => (text === undefined ? (isQuick ? quick : standard) : read(flag, text)),
  };
}

/**
 * Reads a flag's whole number.
 *
 * @throws UsageError naming the flag
 */
export function readWhole(
  flag: string,
  text: string,
  { least = 1, most }: { readonly least?: number; readonly most: number },
): number {
  const value = Number(text);
  if (text.trim() !== "" && Number.isInteger(value) && value >= least && value <= most) return value;
  throw new UsageError(`${flag} must be a whole number from ${least} to ${most}`);
}

/**
 * A time such as `500ms`, `90s`, `30m` or `1h`, in milliseconds.
 *
 * @param range.most the longest; the shortest is a millisecond
 */
export function duration(range: { readonly help: string; readonly standard: string; readonly most: string }) {
  const { help, standard, most } = range;
  return {
    ...{ placeholder: "T", help, standard },
    read(flag, text = standard) {
      const valueMs = parseDuration(text) ?? Number.NaN;
      if (valueMs >= 1 && valueMs <= parseDuration(most)!) return valueMs;
      throw new UsageError(`${flag} must be a time such as 90s, 30m or 1h, at most ${most}`);
    },
  } satisfies Param<number>;
}

/** A file, a folder or another text with a value of its own. */
export function text(placeholder: string, help: string, standard: string): Param<string> {
  return { placeholder, help, standard, read: (_, given = standard) => given };
}

/** What may be left out. A parameter with a standard of its own is read only when its flag is there. */
export function optional<Value>({ placeholder, help, read }: Param<Value>): Param<Value | undefined> {
  return {
    ...(placeholder === undefined ? {} : { placeholder }),
    help,
    read: (flag, given, isQuick) => (given === undefined ? undefined : read(flag, given, isQuick)),
  };
}

/**
 * Names with commas between.
 *
 * @param options.standard of an absent flag: all that are known unless given
 * @param options.shown how the help says that; the names unless given
 */
export function names<Name extends string>(
  help: string,
  known: readonly Name[],
  {
    standard = known,
    shown = standard.join(","),
  }: { readonly standard?: readonly Name[]; readonly shown?: string } = {},
): Param<readonly Name[]> {
  const read = (flag: string, name: string): Name => {
    const found = known.find((each) => each === name);
    if (found !== undefined) return found;
    throw new UsageError(`${flag}: there is no ${JSON.stringify(name)}, but ${known.join(", ")}`);
  };
  return {
    placeholder: "NAMES",
    ...{ help, standard: shown },
    read: (flag, given) => given?.split(",").map((name) => read(flag, name)) ?? standard,
  };
}

/** A flag that is there or not. */
export function flag(help: string): Param<boolean> {
  return { help, read: (_, given) => given !== undefined };
}

/** `--runs`: how often everything is measured. */
export function runs(standard: number, most = 100, help = "runs, of which the medians count"): Param<number> {
  return whole({ help, standard, quick: 1, most });
}

/** `--quick`, which other parameters look at. */
export function quick(help = "one short run"): Param<boolean> {
  return flag(help);
}

/**
 * Reads a command line.
 *
 * @throws UsageError, or the error of `parseArgs`
 */
export function readParams<P extends Params>(params: P, args: readonly string[]): ParamValues<P> {
  const entries = Object.entries(params);
  const { values } = parseArgs({
    args: [...args],
    options: Object.fromEntries(
      entries.map(([name, { placeholder }]) => [
        name,
        { type: placeholder === undefined ? ("boolean" as const) : ("string" as const) },
      ]),
    ),
  });
  const isQuick = values.quick === true;
  return Object.fromEntries(
    entries.map(([name, param]) => {
      const given = values[name];
      return [name, param.read(`--${name}`, given === true ? "" : (given as string | undefined), isQuick)];
    }),
  ) as ParamValues<P>;
}

/** The lines of the help, in columns. */
export function helpOf(params: Params): string {
  const rows = Object.entries({ ...params, json: flag("one JSON object on standard output") }).map(
    ([name, { placeholder, help, standard }]: [string, Param<unknown>]) => {
      const left = placeholder === undefined ? `--${name}` : `--${name} ${placeholder}`;
      return [left, standard === undefined ? help : `${help} (${standard})`] as const;
    },
  );
  const width = Math.max(...rows.map(([left]) => left.length));
  return rows.map(([left, help]) => `  ${left.padEnd(width)}  ${help}\n`).join("");
}
