// Everything written into the page. Model text goes in by textContent only.

const LETTERS = { a: "A", b: "B" };

const KEYS = [
  ["1 2 3 4", "2-up, swipe, overlay, difference"],
  ["f", "fit the page"],
  ["l", "names of labels on or off"],
  ["d", "next difference"],
  ["b B", "next and previous box"],
  ["j k  \u2192 \u2190", "next and previous page"],
  ["Esc", "clear the selection"],
  ["wheel, drag", "zoom, pan"],
  ["?", "this list"],
];

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function round(value, digits) {
  return value === null || value === undefined ? "not measured" : value.toFixed(digits);
}

function coordinates(box) {
  return `${box.x1}, ${box.y1} \u2013 ${box.x2}, ${box.y2} px`;
}

function shorten(text, limit) {
  return text.length > limit ? text.slice(0, limit) + "\u2026" : text;
}

function stateBadge(state) {
  const badge = make("span", "badge", STATES[state].name);
  badge.style.background = STATES[state].colour;
  return badge;
}

function fillTooltip(tooltip, item) {
  const head = make("div");
  head.append(make("b", "", item.box.label), " ", stateBadge(item.state));
  const facts = make("div", "facts", `${LETTERS[item.side]}  ${coordinates(item.box)}`);
  if (item.pair.iou !== null) facts.append(`  IoU ${round(item.pair.iou, 3)}`);
  const text = make("div", "text", item.box.text ? shorten(item.box.text, 240) : "no text");
  tooltip.replaceChildren(head, facts, text);
}

// Differences by name, each a button: the panel while no box is selected.
function changeButtons(pairs, select) {
  const list = make("div", "changes");
  pairs.forEach(({ changes }, index) => {
    for (const words of changes ?? []) {
      const button = make("button", "", words);
      button.addEventListener("click", () => select(index));
      list.append(button);
    }
  });
  return list.childElementCount ? list : make("div", "hint", "Select a box to compare its text on both sides.");
}

const CONTEXT = 60; // characters around what differs, of a long text

// A side's text with what differs marked; what both have is cut in the middle where it is long.
function markedText(box, runs) {
  const text = make("div", "text", runs ? undefined : box.text || "no text");
  runs?.forEach(([words, change], at) => {
    const [first, last] = [at === 0, at === runs.length - 1];
    const most = first || last ? CONTEXT : 2 * CONTEXT;
    let shown = words;
    if (change === "same" && runs.length > 1 && words.length > most + 3)
      shown = `${first ? "" : words.slice(0, CONTEXT)}\u2026${last ? "" : words.slice(-CONTEXT)}`;
    text.append(make("span", change, shown));
  });
  return text;
}

function fillInspector(inspector, pairs, selected, select) {
  const pair = pairs[selected];
  if (!pair) {
    inspector.replaceChildren(changeButtons(pairs, select));
    return;
  }
  const values = pair.changes?.length ? [make("div", "values", pair.changes.join("; "))] : [];
  inspector.replaceChildren(
    ...values,
    ...["a", "b"].map((side) => {
      const cell = make("div");
      cell.dataset.side = side;
      const box = pair[side];
      if (!box) {
        cell.append(make("div", "facts", `${LETTERS[side]}: no such box`));
        return cell;
      }
      const facts = make("div", "facts");
      facts.append(make("b", "", `${LETTERS[side]} #${box.index + 1} ${box.label}`), `  ${coordinates(box)}  `);
      if (side === "a" || !pair.a) {
        facts.append(stateBadge(pair.state));
        if (pair.iou !== null) facts.append(`  IoU ${round(pair.iou, 3)}`);
        if (pair.shift !== null) facts.append(`  shift ${round(pair.shift, 2)} %`);
      }
      cell.append(markedText(box, pair.runs?.[side]), facts);
      return cell;
    }),
  );
}

function fillKeys(sheet, more) {
  sheet.replaceChildren(...[...KEYS, ...more].flatMap(([key, does]) => [make("kbd", "", key), make("span", "", does)]));
}

// One filter menu: rows of {key, name, count, colour, dash}; `hidden` is the set of keys filtered away.
function fillMenu(menu, rows, hidden, onChange, extra) {
  const sheet = menu.querySelector(".sheet");
  const lines = rows.map((row) => {
    const line = make("label");
    const tick = make("input");
    tick.type = "checkbox";
    tick.checked = !hidden.has(row.key);
    tick.addEventListener("change", () => {
      if (tick.checked) hidden.delete(row.key);
      else hidden.add(row.key);
      menu.classList.toggle("filtered", hidden.size > 0);
      onChange();
    });
    const swatch = make("span", "swatch");
    swatch.style.borderColor = row.colour;
    swatch.style.borderStyle = row.dash ? "dashed" : "solid";
    if (row.under) swatch.style.borderWidth = "0 0 3px";
    if (row.fill) swatch.style.background = row.colour + "40";
    line.append(tick, swatch, make("span", "", row.name), make("span", "count", String(row.count)));
    return line;
  });
  if (!rows.length) lines.push(make("div", "facts", "No boxes on this page."));
  sheet.replaceChildren(...(extra ? [extra, make("hr")] : []), ...lines);
  menu.classList.toggle("filtered", hidden.size > 0);
}
