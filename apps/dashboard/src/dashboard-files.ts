import { readdirSync, readFileSync } from "node:fs";

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

const folder = new URL("../dist/page/", import.meta.url);

/** The files of the page as the build has made them; none when it was never built. */
export function dashboardFiles(): readonly DashboardFile[] {
  return listFolder().flatMap((name) => {
    const contentType = contentTypes[name.slice(name.lastIndexOf(".") + 1)];
    return contentType ? [{ name, contentType, text: readFileSync(new URL(name, folder), "utf8") }] : [];
  });
}

function listFolder(): readonly string[] {
  try {
    return readdirSync(folder).sort();
  } catch {
    return [];
  }
}
