/** An element of a document. */
export interface Element {
  readonly name: string;
  readonly attributes: Readonly<Record<string, string>>;
  /** Of the element itself, without its children's. */
  readonly text: string;
  readonly children: readonly Element[];
}

interface OpenElement {
  readonly name: string;
  readonly attributes: Record<string, string>;
  text: string;
  readonly children: OpenElement[];
}

/**
 * The elements of an XML document in the order in which they begin. It fails for a document that is not well formed as
 * far as figures go: tags that do not match, attributes given twice, stray signs.
 */
export function elementsOf(document: string): readonly Element[] {
  const all: OpenElement[] = [];
  const open: OpenElement[] = [];
  for (const [token, close, name, attributes, isEmpty, text] of document
    .trim()
    .matchAll(/<(\/)?([a-z]+)((?:\s[^<>]*?)?)(\/)?>|([^<]+)|[\s\S]/g)) {
    const parent = open.at(-1);
    if (text !== undefined) {
      if (parent === undefined || text.includes(">")) throw new Error(`stray text ${JSON.stringify(text)}`);
      parent.text += unescapeText(text);
    } else if (name === undefined) throw new Error(`stray ${token}`);
    else if (close !== undefined) {
      if (parent?.name !== name) throw new Error(`</${name}> ends ${parent?.name}`);
      open.pop();
    } else {
      const element = { name, attributes: readAttributes(attributes ?? ""), text: "", children: [] };
      if (parent === undefined && all.length > 0) throw new Error(`a second root ${name}`);
      parent?.children.push(element);
      all.push(element);
      if (isEmpty === undefined) open.push(element);
    }
  }
  if (open.length > 0) throw new Error(`${open.at(-1)?.name} does not end`);
  return all;
}

function readAttributes(text: string): Record<string, string> {
  const found: Record<string, string> = {};
  const rest = text.replace(/\s+([\w:-]+)="([^"<]*)"/g, (_, name: string, value: string) => {
    if (name in found) throw new Error(`${name} stands twice`);
    found[name] = unescapeText(value);
    return "";
  });
  if (rest.trim() !== "") throw new Error(`stray ${JSON.stringify(rest)} in a tag`);
  return found;
}

const entities: Readonly<Record<string, string>> = { amp: "&", lt: "<", gt: ">", quot: '"', "#39": "'" };

function unescapeText(text: string): string {
  return text.replace(/&([^;\s]*);?/g, (whole, name: string) => {
    const sign = entities[name];
    if (sign === undefined || !whole.endsWith(";")) throw new Error(`stray ${whole}`);
    return sign;
  });
}
