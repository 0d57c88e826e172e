import { element, type Part, setAttribute, setText } from "./dom.ts";
import { createThemeButton } from "./theme.ts";

export interface BarState {
  /** The router that is read; undefined while none answers. */
  readonly source: string | undefined;
  readonly isLive: boolean;
  readonly policy: string;
  readonly models: readonly string[];
}

/** The top of the page: what it is, where it reads, whether that is live. */
export function createBar(node: HTMLElement): Part<BarState> {
  const light = element("span", { class: "light", "aria-hidden": "true" });
  const text = element("span", { id: "live" });
  const about = element("span", { class: "about" });
  node.append(
    element("h1", {}, logo(), "Espalier"),
    about,
    element("p", { class: "live", role: "status" }, light, text),
    createThemeButton(),
  );
  return {
    node,
    update({ source, isLive, policy, models }) {
      setAttribute(node, "data-live", isLive ? "yes" : "no");
      setText(text, isLive ? `live from ${source ?? "?"}` : source === undefined ? "connecting …" : "nobody answers");
      setText(about, [models.slice(0, 3).join(", "), policy].filter(Boolean).join(" · "));
    },
  };
}

function logo(): Element {
  const space = "http://www.w3.org/2000/svg";
  const picture = document.createElementNS(space, "svg");
  for (const [name, value] of [
    ["viewBox", "0 0 32 32"],
    ["aria-hidden", "true"],
    ["class", "logo"],
  ] as const) {
    picture.setAttribute(name, value);
  }
  const path = document.createElementNS(space, "path");
  path.setAttribute("d", "M16 29V4M16 25H8q-3 0-3-3V6M16 25h8q3 0 3-3V6M16 17h-5M16 17h5");
  picture.append(path);
  return picture;
}
