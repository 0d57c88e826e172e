/** Attributes of an element. Numbers are written with at most two digits after the point. */
export type SvgAttributes = Readonly<Record<string, string | number>>;

/** One element as text; its children are text that is markup already. */
export function svgElement(name: string, attributes: SvgAttributes, children: readonly string[] = []): string {
  const written = Object.entries(attributes).map(([key, value]) => ` ${key}="${escapeText(show(value))}"`);
  const start = `<${name}${written.join("")}`;
  return children.length === 0 ? `${start}/>` : `${start}>${children.join("")}</${name}>`;
}

/** Text as it may stand in an element or an attribute. */
export function escapeText(text: string): string {
  return text
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;")
    .replaceAll("'", "&#39;");
}

function show(value: string | number): string {
  return typeof value === "string" ? value : String(Math.round(value * 100) / 100);
}
