import { type Tree, violation } from "./tree.ts";

/** What biome has no rule for, and a look at the text is enough to find. */
interface Pattern {
  readonly files: RegExp;
  readonly except?: RegExp;
  /** Global; what it finds on a line that is a comment does not count. */
  readonly text: RegExp;
  readonly advice: string;
}

const sources = /^(packages\/[^/]+|apps\/[^/]+|bench)\/src\/.*\.ts$/;
const tests = /(^|\/)test\/.*\.(ts|mjs)$/;
/** The ports themselves. */
const ports = /^packages\/core\/src\/(clock|random)\.ts$|^apps\/dashboard\/src\/follow\/browser-ports\.ts$/;

const patterns: readonly Pattern[] = [
  {
    files: sources,
    except: ports,
    text: /\bDate\.now\b|\bnew Date\(\)|(?<!new )\bDate\(\)|\bprocess\.(hrtime|uptime)\b/g,
    advice: "take a Clock",
  },
  { files: sources, except: ports, text: /\bAbortSignal\.timeout\b/g, advice: "take a Scheduler" },
  {
    files: sources,
    except: ports,
    text: /\bMath\.random\b|\bcrypto\.(randomUUID|getRandomValues)\b/g,
    advice: "take a Random",
  },
  {
    files: tests,
    except: /^test\/tidy\//,
    text: /\bnew Promise(?:<\w+>)?\(\(?(\w+)\)? =>\s*(?:\{\s*)?setTimeout\((?:\(\) => )?\1\b|\bawait (?:sleep|delay)\(/g,
    advice: "sleeps: use waitFor of @espalier/testing, or virtual time",
  },
  {
    files: tests,
    except: /^test\/tidy\//,
    text: /\b(?:describe|it|test)(?:\.\w+|\([^\n]*\))*\.(?:only|skip|todo|fails)\b|\b(?:describe|it|test)\("[^"\n]*", \{[^}\n]*\b(?:only|retry|skip|todo):/g,
    advice: "is a test that is singled out, left out or tried again",
  },
  {
    files: tests,
    except: /^test\/tidy\//,
    text: /^ +if \(!has\w+(?:\(\))?\) return;$/gm,
    advice: "passes where a program is absent: use test.skipIf, which counts in CI",
  },
  {
    files: /(^|\/)package-lock\.json$/,
    text: /"resolved": "[^"]*:\/\//g,
    advice: "names a package registry: take the host out",
  },
];

/** No file has in it what its kind of file must not have. */
export function checkPatterns(tree: Tree): string[] {
  const found: string[] = [];
  for (const [file, text] of tree) {
    for (const { files, except, text: pattern, advice } of patterns) {
      if (!files.test(file) || except?.test(file)) continue;
      for (const match of text.matchAll(pattern)) {
        if (isComment(text, match.index)) continue;
        found.push(violation(file, text, match.index, `${match[0]}: ${advice}`));
      }
    }
  }
  return found;
}

function isComment(text: string, offset: number): boolean {
  return /^\s*(\/\/|\/?\*)/.test(text.slice(text.lastIndexOf("\n", offset) + 1, offset));
}
