// Model text as blocks. Every character of it enters by textContent.

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

const TAGS = { paragraph: "p", item: "p", aligned: "div" };

function spans(runs) {
  return runs.map(([text, side]) => make("span", side, text));
}

// One line of two texts; null where a side has none.
function aligned({ caption, cells }) {
  const texts = cells.map((runs) => {
    const cell = make("div", runs === null ? "cell nothing" : "cell", runs === null ? "no such block" : undefined);
    if (runs !== null) cell.append(...spans(runs));
    return cell;
  });
  return [make("div", "caption", caption), ...texts];
}

function head({ title, titles }) {
  const element = make("header", titles ? "aligned" : "", titles ? undefined : title);
  if (titles) element.append(...titles.map((name) => make("div", "", name)));
  return element;
}

function draw(block) {
  const element = make(TAGS[block.kind], `block ${block.kind}`);
  if (block.kind === "aligned") element.append(...aligned(block));
  else element.textContent = block.text;
  if (block.box !== null && block.box !== undefined) {
    element.classList.add("linked");
    element.dataset.box = block.box;
  }
  return element;
}

const drawn = new WeakMap(); // root -> the content it shows, so that a new selection redraws nothing

function show({ data, parentElement, setStateValue }) {
  const root = parentElement.querySelector(".document");
  const content = JSON.stringify(data.columns);
  if (drawn.get(root) !== content) {
    drawn.set(root, content);
    root.replaceChildren(
      ...data.columns.map(({ blocks, ...names }) => {
        const column = make("div", "column");
        column.append(head(names), ...blocks.map(draw));
        if (!blocks.length) column.append(make("p", "block nothing", "No text."));
        return column;
      }),
    );
  }
  root.onclick = (event) => {
    const block = event.target.closest(".linked");
    if (block && !getSelection().toString()) setStateValue("selected", { row: Number(block.dataset.box), n: Date.now() });
  };
  for (const column of root.querySelectorAll(".column")) {
    let first = null;
    for (const block of column.querySelectorAll(".block")) {
      const chosen = data.selected !== null && block.dataset.box === String(data.selected);
      block.classList.toggle("selected", chosen);
      if (chosen) first ??= block;
    }
    // Scroll the column, never the page.
    if (first) {
      const head = column.querySelector("header").offsetHeight;
      const top = first.offsetTop - column.offsetTop - head;
      if (top < column.scrollTop || top > column.scrollTop + column.clientHeight - 60) column.scrollTop = top - 8;
    }
  }
}
