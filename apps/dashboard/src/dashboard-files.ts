import { readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";

/** One file of the page. */
export interface DashboardFile {
  /** `index.html`, or what that loads. */
  readonly name: string;
  readonly contentType: string;
  readonly text: string;
}

const contentTypes: Readonly<Record<string, string>> = {
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
};

/** The files of the page: those of a package, or made of the sources that this module is one of. */
export function dashboardFiles(): readonly DashboardFile[] {
  const texts = import.meta.url.endsWith(".ts") ? bundledTexts() : packedTexts();
  return Object.entries(texts).flatMap(([name, text]) => {
    const contentType = contentTypes[name.slice(name.lastIndexOf(".") + 1)];
    return contentType ? [{ name, contentType, text }] : [];
  });
}

function bundledTexts(): Readonly<Record<string, string>> {
  const bundler = createRequire(import.meta.url)("../bin/bundle.mjs") as {
    bundlePage(): Readonly<Record<string, string>>;
  };
  return bundler.bundlePage();
}

function packedTexts(): Readonly<Record<string, string>> {
  const folder = new URL("./page/", import.meta.url);
  const names = readdirSync(folder).sort();
  return Object.fromEntries(names.map((name) => [name, readFileSync(new URL(name, folder), "utf8")]));
}
