/**
 * The dashboard: a page that follows routers live through y-websocket and server-sent events. This module hands the page's
 * files to the program that serves them; the page itself starts in `main.ts` and runs in browsers.
 */
export { dashboardFiles } from "./dashboard-files.ts";
