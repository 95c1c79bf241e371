// How Streamlit calls a component: end of the module of each, whose own files define `show`.

// Streamlit calls once the browser has the module. While a browser loads it, calls wait, and Chromium answers those that
// wait in any order: the data of a page just left may come after those of the page in sight, and must not replace them.
const NEWEST = new WeakMap(); // the element of a component -> since when the server means what it shows

// Addresses of the server begin with "/". A proxy or --server.baseUrlPath may put the app under a prefix, which the
// page's own address has before the name of the page.
const PAGE_NAME = /\/(compare|review|timing|runs|flops)?\/?$/;

function served(url) {
  return url.startsWith("/") ? location.pathname.replace(PAGE_NAME, "") + url : url;
}

// Words of others enter by textContent only.
function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

export default function ({ data, ...component }) {
  const { parentElement } = component;
  if (data.since < (NEWEST.get(parentElement) ?? 0)) return undefined;
  NEWEST.set(parentElement, data.since);
  return show({ ...component, data: data.shown });
}
