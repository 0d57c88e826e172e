/// <reference lib="dom" />
import { element, setAttribute, setText } from "./dom.ts";

const themes = ["auto", "light", "dark"] as const;
type Theme = (typeof themes)[number];

const storageKey = "espalier-theme";
const labels: Readonly<Record<Theme, string>> = { auto: "Auto", light: "Light", dark: "Dark" };

/** A button that goes through the themes: that of the system, light, dark. What was chosen is remembered. */
export function createThemeButton(): HTMLButtonElement {
  let theme = themes.find((name) => name === localStorage.getItem(storageKey)) ?? "auto";
  const button = element("button", { type: "button", class: "theme", title: "Light, dark, or as the system has it" });
  const show = (): void => {
    const root = document.documentElement;
    setAttribute(root, "data-theme", theme === "auto" ? false : theme);
    setText(button, labels[theme]);
    setAttribute(button, "aria-label", `Theme: ${labels[theme]}`);
    root.dispatchEvent(new Event("themechange"));
  };
  button.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length] ?? "auto";
    localStorage.setItem(storageKey, theme);
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
  return button;
}
