import { type Figure, maxLineNames, maxLinePoints, maxPanels } from "./figure.ts";
import { lineClass, styleSheet } from "./line-styles.ts";
import { panelHeight, panelWidth, renderPanel } from "./render-panel.ts";
import { escapeText, svgElement } from "./svg-element.ts";

const margin = 16;
const titleHeight = 34;
const legendRowHeight = 20;
const legendSwatch = 26;
/** Width of a letter of the legend at 12 px: a guess on the wide side. */
const letterWidth = 7;
const defaultColumns = 2;

/**
 * A figure as an SVG document. It needs no script and no font of its own, and follows the reader's light or dark colour
 * scheme.
 *
 * @throws RangeError for more than 24 panels, 24 names of lines or 2,000 points of a line, or without a panel
 */
export function renderFigure(figure: Figure): string {
  checkBounds(figure);
  const { title, description, panels } = figure;
  const columns = Math.min(figure.columns ?? defaultColumns, panels.length);
  const rows = Math.ceil(panels.length / columns);
  const names = [...new Set(panels.flatMap((panel) => panel.lines.map((line) => line.name)))];
  const width = columns * panelWidth + 2 * margin;
  const legend = layOutLegend(names, width - 2 * margin);
  const panelsTop = margin + titleHeight + legend.rows * legendRowHeight;
  const height = panelsTop + rows * panelHeight + margin;
  const styleOf = (name: string): number => names.indexOf(name);
  const content = [
    svgElement("title", { id: "figure-title" }, [escapeText(title)]),
    svgElement("desc", { id: "figure-desc" }, [escapeText(description)]),
    svgElement("style", {}, [styleSheet()]),
    svgElement("rect", { class: "ground", width, height }),
    svgElement("text", { class: "title", x: margin, y: margin + 16 }, [escapeText(title)]),
    ...legend.entries.map(({ name, x, y }) => {
      const top = margin + titleHeight + y;
      return svgElement("g", {}, [
        svgElement("path", { class: `line ${lineClass(styleOf(name))}`, d: `M${margin + x} ${top}h20` }),
        svgElement("text", { x: margin + x + legendSwatch, y: top + 4 }, [escapeText(name)]),
      ]);
    }),
    ...panels.map((panel, at) => {
      const x = margin + (at % columns) * panelWidth;
      const y = panelsTop + Math.floor(at / columns) * panelHeight;
      return svgElement("g", { transform: `translate(${x} ${y})` }, [renderPanel(panel, styleOf)]);
    }),
  ];
  const attributes = {
    xmlns: "http://www.w3.org/2000/svg",
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    role: "img",
    "aria-labelledby": "figure-title figure-desc",
  };
  return `${svgElement("svg", attributes, content)}\n`;
}

function checkBounds({ panels }: Figure): void {
  if (panels.length === 0 || panels.length > maxPanels)
    throw new RangeError(`a figure has 1 to ${maxPanels} panels, not ${panels.length}`);
  const lines = panels.flatMap((panel) => panel.lines);
  const names = new Set(lines.map((line) => line.name)).size;
  if (names > maxLineNames) throw new RangeError(`a figure has up to ${maxLineNames} names of lines, not ${names}`);
  const long = lines.find((line) => line.points.length > maxLinePoints);
  if (long) throw new RangeError(`a line has up to ${maxLinePoints} points, ${long.name} has ${long.points.length}`);
}

interface LegendEntry {
  readonly name: string;
  readonly x: number;
  readonly y: number;
}

/** Names beside each other, wrapped at the width. */
function layOutLegend(
  names: readonly string[],
  width: number,
): { readonly entries: readonly LegendEntry[]; readonly rows: number } {
  const entries: LegendEntry[] = [];
  let x = 0;
  let row = 0;
  for (const name of names) {
    const needed = legendSwatch + name.length * letterWidth + margin;
    if (x > 0 && x + needed > width) {
      x = 0;
      row++;
    }
    entries.push({ name, x, y: row * legendRowHeight });
    x += needed;
  }
  return { entries, rows: names.length === 0 ? 0 : row + 1 };
}
