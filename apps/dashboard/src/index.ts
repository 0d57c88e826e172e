/**
 * The dashboard: a page that follows routers live through y-websocket and server-sent events. This is its face towards
 * the program that serves it; the page itself starts in `main.ts` and runs in browsers.
 */
export { type DashboardFile, dashboardFiles } from "./dashboard-files.ts";
