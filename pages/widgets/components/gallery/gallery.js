// Pages as a grid of pictures; a pick is reported as state. Names are a stranger's words: they enter by textContent only.

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function draw(item) {
  const button = make("button", item.tone);
  button.setAttribute("role", "option");
  button.dataset.key = item.key;
  button.title = item.title;
  const picture = make(item.url ? "img" : "i", item.url ? "" : "blank");
  if (item.url) Object.assign(picture, { src: served(item.url), alt: "" });
  button.append(picture);
  item.readings.forEach((reading, at) => {
    const line = make("span", "reading");
    line.append(make("b", "", "AB"[at]), ` ${reading}`);
    button.append(line);
  });
  button.append(make("span", "name", item.name), make("span", "words", `${item.sign} ${item.words}`));
  if (item.verdict) button.append(make("span", `verdict ${item.verdict}`, item.verdict));
  return button;
}

const drawn = new WeakMap(); // root -> the items it shows, so that a step redraws none

function show({ data, parentElement, setStateValue }) {
  const root = parentElement.querySelector(".gallery");
  const content = JSON.stringify([data.first, data.count, data.items]);
  const moved = root.dataset.position !== String(data.position) || drawn.get(root) !== content;
  if (drawn.get(root) !== content) {
    drawn.set(root, content);
    const at = root.getRootNode().activeElement?.dataset.key; // a thumbnail that comes takes nobody's focus
    root.setAttribute("aria-label", data.label);
    const note = (count, where) => (count > 0 ? [make("p", "", `${count.toLocaleString("en")} more ${where}`)] : []);
    const items = data.items.map(draw);
    root.replaceChildren(...note(data.first, "before"), ...items, ...note(data.count - data.first - data.items.length, "after"));
    if (at !== undefined) items.find((item) => item.dataset.key === at)?.focus();
  }
  root.onclick = (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (event.detail) button.blur(); // after a click the arrow keys turn pages
    // A number makes picking the same page again, after turning pages, a change.
    setStateValue("picked", { key: button.dataset.key, n: Date.now() });
  };
  const buttons = [...root.querySelectorAll("button")];
  const chosen = buttons[data.position - data.first] ?? null;
  const columns = getComputedStyle(root).gridTemplateColumns; // "none" where it is no grid
  rove(root, buttons, chosen, columns.split(" ").length);
  for (const button of buttons) button.setAttribute("aria-selected", String(button === chosen));
  root.dataset.position = data.position;
  if (!chosen || !moved) return;
  for (const [start, size, scroll, inner] of [["offsetTop", "offsetHeight", "scrollTop", "clientHeight"], ["offsetLeft", "offsetWidth", "scrollLeft", "clientWidth"]]) {
    const end = chosen[start] + chosen[size];
    if (chosen[start] < root[scroll]) root[scroll] = chosen[start] - 60;
    else if (end > root[scroll] + root[inner]) root[scroll] = end - root[inner] + 60;
  }
}
