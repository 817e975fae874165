// Where the page is: a path and a query. A server gives every page an address; a file on disk has one address, so there
// both stand behind its `#`.

/** Does this page carry the core inside itself? */
export const ALONE = document.getElementById("core") !== null;

/** What a page without a server shows when its address says nothing: the start that was written into it. */
const START = document.querySelector<HTMLMetaElement>("meta[name=preflop-start]")?.content ?? "";

const inside = (): URL => new URL(location.hash.length > 1 ? location.hash.slice(1) : START || "/", "file:///");

export const path = (): string => (ALONE ? inside().pathname : location.pathname);
export const query = (): string => (ALONE ? inside().search : location.search);
/** The address of a page of ours, for links. */
export const address = (to: string): string => (ALONE ? `#${to}` : to);

/** Another page; going back leads here. */
export function go(to: string): void { history.pushState(null, "", address(to)); }
/** The same page in another state. */
export function stay(search: string): void { history.replaceState(null, "", address(path() + (search ? `?${search}` : ""))); }
