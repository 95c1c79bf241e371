// Pages as a grid of pictures; a pick is reported as state. Names are a stranger's words: they enter by textContent only.

function draw(item) {
  const button = make("button", item.tone);
  button.setAttribute("role", "option");
  button.setAttribute("aria-selected", "false");
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

const drawn = new WeakMap(); // root -> the items it shows

// One stop of Tab for all; arrows lead from one to the next, Enter picks.
function rove(root, buttons, across) {
  const stop = buttons.includes(root.getRootNode().activeElement) ? root.getRootNode().activeElement : buttons[0];
  for (const button of buttons) button.tabIndex = button === stop ? 0 : -1;
  root.onkeydown = (event) => {
    const at = buttons.indexOf(event.target);
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across, Home: -at, End: buttons.length - 1 - at }[event.key];
    if (at < 0 || by === undefined) return;
    event.preventDefault();
    event.stopPropagation(); // no page is turned
    if (!buttons[at + by]) return;
    event.target.tabIndex = -1;
    buttons[at + by].tabIndex = 0;
    buttons[at + by].focus();
  };
}

function show({ data, parentElement, setStateValue }) {
  const root = parentElement.querySelector(".gallery");
  const content = JSON.stringify(data.items);
  if (drawn.get(root) !== content) {
    drawn.set(root, content);
    const at = root.getRootNode().activeElement?.dataset.key; // a thumbnail that comes takes nobody's focus
    root.setAttribute("aria-label", data.label);
    const items = data.items.map(draw);
    root.replaceChildren(...items);
    if (at !== undefined) items.find((item) => item.dataset.key === at)?.focus();
  }
  root.onclick = (event) => {
    const button = event.target.closest("button");
    // A number makes picking the same page again, after turning pages, a change.
    if (button) setStateValue("picked", { key: button.dataset.key, n: Date.now() });
  };
  rove(root, [...root.querySelectorAll("button")], getComputedStyle(root).gridTemplateColumns.split(" ").length);
}
