import type { Tree, Violation } from "./tree.ts";
import { isBuilt, ownDependencies, thirdPartyDependencies, workspacesOf } from "./workspaces.ts";

const file = "ARCHITECTURE.md";

interface Row {
  readonly line: number;
  readonly name: string;
  readonly imports: readonly string[];
  readonly owns: readonly string[];
}

/**
 * The table under the heading "Dependencies" of ARCHITECTURE.md equals the package.json files. Its columns are
 * package, responsibility, what it imports, which libraries it owns; `-` or nothing stands for none.
 */
export function checkArchitectureTable(tree: Tree): Violation[] {
  const text = tree.get(file);
  if (text === undefined) return [{ file, line: 1, message: "is missing: write it" }];
  const rows = rowsOf(text);
  if (rows.length === 0) return [{ file, line: 1, message: 'has no table under a heading "Dependencies": add it' }];
  const found: Violation[] = [];
  for (const { name, manifest } of workspacesOf(tree).filter(isBuilt)) {
    const row = rows.find((candidate) => candidate.name === name);
    const imports = ownDependencies(manifest.dependencies);
    const owns = thirdPartyDependencies(manifest.dependencies);
    if (!row) {
      found.push({ file, line: 1, message: `has no row for \`${name}\`: add it` });
      continue;
    }
    found.push(...compare(row, "imports", row.imports, imports), ...compare(row, "owns", row.owns, owns));
  }
  const names = workspacesOf(tree).map(({ name }) => name);
  for (const { name, line } of rows) {
    if (!names.includes(name)) found.push({ file, line, message: `has a row for \`${name}\`, no package: remove it` });
  }
  return found;
}

function compare(row: Row, column: string, drawn: readonly string[], real: readonly string[]): Violation[] {
  const missing = real.filter((name) => !drawn.includes(name));
  const extra = drawn.filter((name) => !real.includes(name));
  const place = { file, line: row.line };
  return [
    ...missing.map((name) => ({ ...place, message: `\`${row.name}\` ${column} ${name}: add it to the table` })),
    ...extra.map((name) => ({ ...place, message: `\`${row.name}\` ${column} no ${name}: take it out of the table` })),
  ];
}

function rowsOf(text: string): Row[] {
  const rows: Row[] = [];
  let inSection = false;
  for (const [index, line] of text.split("\n").entries()) {
    if (/^#+\s/.test(line)) inSection = /^#+\s+Dependencies\s*$/.test(line);
    const cells = line.split("|").map((cell) => cell.trim());
    const name = /^`([^`]+)`$/.exec(cells[1] ?? "")?.[1];
    if (!inSection || name === undefined) continue;
    rows.push({ line: index + 1, name, imports: namesIn(cells[3] ?? ""), owns: namesIn(cells[4] ?? "") });
  }
  return rows;
}

function namesIn(cell: string): string[] {
  return cell
    .replaceAll("`", "")
    .split(",")
    .map((name) => name.trim())
    .filter((name) => name !== "" && name !== "-");
}
