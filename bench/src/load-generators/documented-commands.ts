/** A command of a load generator, as a page shows it. */
export interface DocumentedCommand {
  /** The heading above it. */
  readonly heading: string;
  readonly command: string;
  /** Files that it reads, by name. */
  readonly files: Readonly<Record<string, string>>;
}

/** What replaces the words in capitals. */
export interface CommandPlace {
  /** Of the routers, without a slash at the end. */
  readonly url: string;
  readonly model: string;
  /** Folder of recorded sessions. */
  readonly traces: string;
}

const fence = /^```(sh|yaml)\n([\s\S]*?)^```$/gm;
const headings = /^#+ (.+)$/gm;

/**
 * The commands of a page that name `http://ROUTER:8080`. A file is shown below the command that reads it, which is its first
 * line, as a comment: `# inference-perf --config_file config.yaml`.
 */
export function documentedCommands(page: string): readonly DocumentedCommand[] {
  const all = [...page.matchAll(headings)];
  return [...page.matchAll(fence)]
    .filter(([, , text = ""]) => text.includes("http://ROUTER:8080"))
    .map(({ 1: kind, 2: text = "", index: at }) => {
      const heading = all.findLast(({ index }) => index < at)?.[1] ?? "";
      if (kind === "sh") return { heading, command: text.trim(), files: {} };
      const [, command = "", name = ""] = /^# (.* (\S+))$/m.exec(text) ?? [];
      return { heading, command, files: { [name]: text } };
    });
}

/** The command and its files with addresses and names in place of the words in capitals. */
export function placed({ heading, command, files }: DocumentedCommand, place: CommandPlace): DocumentedCommand {
  const replace = (text: string): string =>
    text
      .replaceAll("http://ROUTER:8080", place.url)
      .replace(/\bMODEL\b/g, place.model)
      .replace(/\bTRACES\b/g, place.traces);
  return {
    heading,
    command: replace(command),
    files: Object.fromEntries(Object.entries(files).map(([name, text]) => [name, replace(text)])),
  };
}
