// Back and Forward within a page. Streamlit would run the page with the older address, which its session, that has the
// truth, would write over: the session is told to take the address on in its place.

const WATCHED = new WeakMap(); // the element of a page -> how to tell its session

// What the session was writing when Back came is late, and would be one more entry or replace the one gone to: until
// the session has heard of Back nothing but the address that it led to is written.
let asked = null; // {search, n}, the last step back or forward that the session has not taken on

function unlessLate(write) {
  return (state, title, url) => {
    const there = new URL(url ?? location.href, location.href);
    const late = asked !== null && there.pathname === location.pathname && there.search !== asked.search;
    return late ? undefined : write.call(history, state, title, url);
  };
}

// A table of Streamlit's takes Tab for its next cell: it leads out of the table, and arrows go from cell to cell.
function leaveTable(event) {
  if (event.key === "Tab" && event.target.closest?.('[data-testid="stDataFrame"]')) event.stopImmediatePropagation();
}

// What is typed into a field of text until it is sent. A rerun that was under way may draw the field anew, with what the
// session held before: what was typed is put back before Enter, or a click elsewhere, sends the field.
const TYPED = new Map(); // by the key of the field

function fieldKey(target) {
  const field = target.closest?.(".stTextInput, .stTextArea") && target.closest('[class*="st-key-"]');
  return field ? field.className.match(/st-key-[\w-]+/)[0] : null;
}

function typing({ target, isTrusted }) {
  const key = fieldKey(target);
  if (key && isTrusted) TYPED.set(key, target.value);
}

function sending({ target, type, key: pressed }) {
  const key = fieldKey(target);
  if (!TYPED.has(key) || (type === "keydown" && pressed !== "Enter")) return;
  const text = TYPED.get(key);
  TYPED.delete(key);
  if (target.value === text) return;
  // As if typed: a value that is only set React does not see.
  Object.getOwnPropertyDescriptor(Object.getPrototypeOf(target), "value").set.call(target, text);
  target.dispatchEvent(new Event("input", { bubbles: true }));
}

function show({ parentElement, data, setStateValue }) {
  const root = parentElement.querySelector(".page");
  const known = WATCHED.has(root);
  if (asked?.n === data.taken) asked = null;
  WATCHED.set(root, setStateValue);
  if (known) return undefined;
  const page = location.pathname;
  const listener = (event) => {
    if (!root.isConnected) return window.removeEventListener("popstate", listener, true);
    asked = null;
    if (location.pathname !== page) return undefined; // to another page: Streamlit's own
    event.stopImmediatePropagation();
    asked = { search: location.search, n: Date.now() };
    return WATCHED.get(root)("back", { query: location.search.slice(1), n: asked.n });
  };
  history.pushState = unlessLate(History.prototype.pushState);
  history.replaceState = unlessLate(History.prototype.replaceState);
  window.addEventListener("popstate", listener, true);
  // Once, however often they are added.
  window.addEventListener("keydown", leaveTable, true);
  window.addEventListener("input", typing, true);
  window.addEventListener("keydown", sending, true);
  window.addEventListener("focusout", sending, true);
  return undefined;
}
