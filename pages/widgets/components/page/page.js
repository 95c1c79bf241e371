// Back and Forward within a page. Streamlit would run the page with the older address, which its session, that has the
// truth, would write over: the session is told to take the address on in its place.

const WATCHED = new WeakMap(); // the element of a page -> how to tell its session

// A table of Streamlit's takes Tab for its next cell: it leads out of the table, and arrows go from cell to cell.
function leaveTable(event) {
  if (event.key === "Tab" && event.target.closest?.('[data-testid="stDataFrame"]')) event.stopImmediatePropagation();
}

function show({ parentElement, setStateValue }) {
  const root = parentElement.querySelector(".page");
  const known = WATCHED.has(root);
  WATCHED.set(root, setStateValue);
  if (known) return undefined;
  const page = location.pathname;
  const listener = (event) => {
    if (!root.isConnected) return window.removeEventListener("popstate", listener, true);
    if (location.pathname !== page) return undefined; // to another page: Streamlit's own
    event.stopImmediatePropagation();
    return WATCHED.get(root)("back", { query: location.search.slice(1), n: Date.now() });
  };
  window.addEventListener("popstate", listener, true);
  window.addEventListener("keydown", leaveTable, true); // once, however often it is added
  return undefined;
}
