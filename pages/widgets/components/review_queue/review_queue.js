// The queue: a line a page. Names are a stranger's words: they enter by textContent only.

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function draw(line, number) {
  const button = make("button", line.tone);
  button.setAttribute("role", "option");
  button.dataset.name = line.name;
  button.title = line.title;
  button.append(make("span", "number", number), make("span", "name", line.name), make("span", "words", `${line.sign} ${line.words}`));
  if (line.verdict) button.append(make("span", `verdict ${line.verdict}`, line.verdict));
  return button;
}

const drawn = new WeakMap(); // root -> the lines it shows, so that a step redraws none

function show({ data, parentElement, setStateValue }) {
  const root = parentElement.querySelector(".queue");
  const content = JSON.stringify([data.first, data.count, data.lines]);
  if (drawn.get(root) !== content) {
    drawn.set(root, content);
    const above = data.first;
    const below = data.count - data.first - data.lines.length;
    const note = (count, where) => (count > 0 ? [make("p", "", `${count.toLocaleString("en")} more ${where}`)] : []);
    const lines = data.lines.map((line, at) => draw(line, data.first + at + 1));
    if (!data.count) lines.push(make("p", "", "No page passes the filters."));
    root.replaceChildren(...note(above, "before"), ...lines, ...note(below, "after"));
  }
  root.onclick = (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (event.detail) button.blur(); // after a click the arrow keys turn pages
    // A number makes picking the same page again, after turning pages, a change.
    setStateValue("picked", { name: button.dataset.name, n: Date.now() });
  };
  const buttons = [...root.querySelectorAll("button")];
  const chosen = buttons[data.position - data.first] ?? null;
  rove(root, buttons, chosen, 1);
  for (const button of buttons) button.setAttribute("aria-selected", String(button === chosen));
  root.dataset.position = data.position;
  if (!chosen) return;
  const top = chosen.offsetTop;
  const bottom = top + chosen.offsetHeight;
  if (top < root.scrollTop) root.scrollTop = top - 60;
  else if (bottom > root.scrollTop + root.clientHeight) root.scrollTop = bottom - root.clientHeight + 60;
}
