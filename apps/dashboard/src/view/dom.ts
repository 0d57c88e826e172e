/// <reference lib="dom" />

type Child = Node | string;
type Attributes = Readonly<Record<string, string | boolean>>;

/** An element with attributes and children; `true` sets an attribute without a value, `false` leaves it out. */
export function element<Name extends keyof HTMLElementTagNameMap>(
  name: Name,
  attributes: Attributes = {},
  ...children: readonly Child[]
): HTMLElementTagNameMap[Name] {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) setAttribute(made, key, value);
  made.append(...children);
  return made;
}

/** Changes nothing where the text is the same, so that nothing that is selected or read out is lost. */
export function setText(node: Element, text: string): void {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttribute(node: Element, name: string, value: string | boolean): void {
  if (value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== (value === true ? "" : value))
    node.setAttribute(name, value === true ? "" : value);
}

/** The length of a bar, from 0 to 1. */
export function setFill(node: HTMLElement, share: number): void {
  const width = `${Math.round(Math.max(0, Math.min(1, share)) * 1_000) / 10}%`;
  if (node.style.width !== width) node.style.width = width;
}

/** Something on the page that shows a value of its own. */
export interface Part<Value> {
  readonly node: HTMLElement;
  update(value: Value): void;
}

/**
 * Shows a list: a part for each value, found again by its key, so that what has the focus keeps it.
 *
 * @returns shows another list of values
 */
export function keyedList<Value>(
  parent: HTMLElement,
  keyOf: (value: Value) => string,
  create: (value: Value) => Part<Value>,
): (values: readonly Value[]) => void {
  const parts = new Map<string, Part<Value>>();
  return (values) => {
    const keys = new Set(values.map(keyOf));
    for (const [key, part] of parts) {
      if (keys.has(key)) continue;
      part.node.remove();
      parts.delete(key);
    }
    let place: ChildNode | null = parent.firstChild;
    for (const value of values) {
      const key = keyOf(value);
      const part = parts.get(key) ?? create(value);
      parts.set(key, part);
      part.update(value);
      if (part.node === place) place = place.nextSibling;
      else parent.insertBefore(part.node, place);
    }
  };
}

/** A section of the page with a heading; `aside` is one line next to that. */
export function panel(title: string, className: string, ...children: readonly Child[]) {
  const id = `panel-${title.toLowerCase().replaceAll(/[^a-z]+/g, "-")}`;
  const aside = element("p", { class: "aside" });
  const heading = element("h2", { id }, title);
  const head = element("div", { class: "head" }, heading, aside);
  const body = element("div", { class: "body" }, ...children);
  return { node: element("section", { class: `panel ${className}`, "aria-labelledby": id }, head, body), aside };
}

/** By which column a table is sorted, and how. */
interface Sorting<Order extends string> {
  readonly by: Order;
  readonly isDescending: boolean;
}

/**
 * Heads of a table that is sorted by one of its columns.
 *
 * @param columns their names
 * @param isFigure whether a column is looked at from the largest value
 * @param sort called when another order is chosen
 */
export function sortHeads<Order extends string>(
  columns: Readonly<Record<Order, string>>,
  isFigure: (by: Order) => boolean,
  sort: (sorting: Sorting<Order>) => void,
): Part<Sorting<Order>> {
  let shown: Sorting<Order> | undefined;
  const heads = (Object.keys(columns) as Order[]).map((by) => {
    const button = element("button", { type: "button", class: "sort" }, columns[by]);
    button.addEventListener("click", () =>
      sort({ by, isDescending: shown?.by === by ? !shown.isDescending : isFigure(by) }),
    );
    return { by, node: element("th", { scope: "col" }, button) };
  });
  return {
    node: element("tr", {}, ...heads.map(({ node }) => node)),
    update(sorting) {
      shown = sorting;
      const direction = sorting.isDescending ? "descending" : "ascending";
      for (const { by, node } of heads) setAttribute(node, "aria-sort", by === sorting.by ? direction : "none");
    },
  };
}

/** Height of the line that says how many rows are below. */
const moreLinePx = 20;

/**
 * Shows whole rows only: what is cut off at the bottom of a box that scrolls is covered by a line with the number of rows below.
 *
 * @param rows selects them within the box, in their order on the page
 */
export function wholeRows(box: HTMLElement, rows: string): void {
  const text = element("span");
  box.append(element("p", { class: "below", "aria-hidden": "true" }, text));
  const update = (): void => {
    const all = [...box.querySelectorAll(rows)];
    const endPx = box.getBoundingClientRect().bottom;
    const { first, heightPx } = firstCovered(
      all.map((row) => row.getBoundingClientRect()),
      endPx,
    );
    text.style.height = `${heightPx}px`;
    setText(text, heightPx === 0 ? "" : `${all.length - first} more`);
  };
  let isDue = false;
  const updateSoon = (): void => {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => {
      isDue = false;
      update();
    });
  };
  new ResizeObserver(update).observe(box);
  new MutationObserver(updateSoon).observe(box, { childList: true, subtree: true });
  box.addEventListener("scroll", update, { passive: true });
}

/**
 * The first row that is covered, and the height of the cover: from its top to the end of the box, or 0 where all rows fit.
 *
 * @param rows places of the rows, from top to bottom
 */
export function firstCovered(
  rows: readonly { readonly top: number; readonly bottom: number }[],
  endPx: number,
): { readonly first: number; readonly heightPx: number } {
  // Half a pixel is no part of a row that anybody sees.
  let first = rows.findIndex(({ bottom }) => bottom > endPx + 0.5);
  if (first < 0) return { first: rows.length, heightPx: 0 };
  while (first > 0 && endPx - rows[first]!.top < moreLinePx) first -= 1;
  return { first, heightPx: Math.max(0, endPx - rows[first]!.top) };
}

/** Colours by which engines and routers are told apart; the style sheet has one for each number. */
const hueCount = 10;

/** Gives each name the next colour, and keeps it. */
export function createHues(): (name: string) => string {
  const numbers = new Map<string, number>();
  return (name) => {
    const known = numbers.get(name) ?? numbers.size;
    numbers.set(name, known);
    return `hue-${known % hueCount}`;
  };
}
