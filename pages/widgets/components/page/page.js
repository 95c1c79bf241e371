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

function show() {
  // Once, however often they are added.
  window.addEventListener("keydown", leaveTable, true);
  window.addEventListener("input", typing, true);
  window.addEventListener("keydown", sending, true);
  window.addEventListener("focusout", sending, true);
}
