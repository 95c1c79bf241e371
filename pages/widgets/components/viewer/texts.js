// Everything written into the page. Model text goes in by textContent only.

const LETTERS = { a: "A", b: "B" };

const KEYS = [
  ["1 2 3", "texts, 2-up, swipe"],
  ["f", "fit the page"],
  ["l", "names of labels on or off"],
  ["d", "next difference"],
  ["b B", "next and previous box"],
  ["j k  \u2192 \u2190", "next and previous page"],
  ["Esc", "clear the selection"],
  ["wheel, drag", "zoom, pan"],
  ["?", "this list"],
];

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

// A side's text of a block: `runs` of [words, change], or as it is.
function sideText(side, text, runs) {
  const cell = make("div", text === null ? "text nothing" : "text", text === null ? "no such block" : runs ? undefined : text || "no text");
  cell.dataset.side = side;
  if (text !== null) runs?.forEach(([words, change]) => cell.append(make("span", change, words)));
  return cell;
}

const CROP = { width: 420, height: 56, zoom: 1.2 }; // at most, in pixels of the screen and of the screen a pixel of the page

// The block as it stands on the page, beside what both sides read.
function crop({ url, width, height }, box) {
  const [across, down] = [Math.max(box.x2 - box.x1, 1), Math.max(box.y2 - box.y1, 1)];
  const zoom = Math.min(CROP.zoom, CROP.width / across, CROP.height / down);
  const part = make("div", "crop");
  part.title = "the page";
  Object.assign(part.style, {
    width: `${across * zoom}px`, aspectRatio: `${across} / ${down}`, backgroundImage: `url("${encodeURI(served(url))}")`,
    backgroundSize: `${width * zoom}px ${height * zoom}px`, backgroundPosition: `${-box.x1 * zoom}px ${-box.y1 * zoom}px`,
  });
  return part;
}

function rowOf(caption, texts, runs, more = []) {
  const row = make("div", "row");
  const head = make("div", "caption");
  head.append(...caption);
  row.append(head, ...more, ...SIDES.map((side) => sideText(side, texts[side], runs?.[side])));
  return row;
}

function pairRow(viewer, pair, index) {
  const box = pair.a ?? pair.b;
  const caption = [make("b", "", `#${box.index + 1}`), ` ${box.label} `];
  if (pair.state !== "matched" && pair.state !== "single") caption.push(stateBadge(pair.state));
  if (viewer.divergence?.a === index) caption.push(` ${viewer.divergence.words}`);
  const texts = Object.fromEntries(SIDES.map((side) => [side, pair[side]?.text ?? null]));
  const row = rowOf(caption, texts, pair.runs, pair.differs ? [crop(viewer.image, box)] : []);
  row.dataset.box = index;
  return row;
}

// Both texts, block beside block, with what differs marked; a click selects the block's box.
function fillTexts(root, viewer) {
  if (root.drawn !== viewer.pairs) {
    root.drawn = viewer.pairs;
    const head = make("header");
    for (const side of SIDES) {
      const cell = make("div");
      cell.append(make("b", "", viewer.names[side]), ` ${viewer.sides[side].summary}`);
      cell.title = cell.textContent;
      head.append(cell);
    }
    const loose = viewer.loose.map(({ caption, a, b }) => rowOf([caption], { a: "", b: "" }, { a, b }));
    root.replaceChildren(head, ...loose, ...viewer.pairs.map((pair, index) => pairRow(viewer, pair, index)));
  }
  for (const row of root.querySelectorAll(".row[data-box]")) {
    const chosen = Number(row.dataset.box) === viewer.selected;
    row.classList.toggle("selected", chosen);
    if (!chosen) continue;
    const top = row.offsetTop - root.querySelector("header").offsetHeight;
    if (top < root.scrollTop || row.offsetTop + row.offsetHeight > root.scrollTop + root.clientHeight) root.scrollTop = top - 8;
  }
}

function fillKeys(sheet, more) {
  sheet.replaceChildren(...[...KEYS, ...more].flatMap(([key, does]) => [make("kbd", "", key), make("span", "", does)]));
}

// The menu of what is shown: rows of {name, count, colour, dash, fill, under, key, of: what is hidden} or {name, on, change}.
function fillMenu(menu, rows, onChange) {
  const lines = rows.map(({ key, of, change, ...row }) => {
    const line = make("label");
    const tick = make("input");
    tick.type = "checkbox";
    tick.checked = of ? !of.has(key) : row.on;
    tick.addEventListener("change", () => {
      if (!of) return change();
      of[tick.checked ? "delete" : "add"](key);
      return onChange();
    });
    line.append(tick, make("span", "", row.name));
    if (of) {
      const swatch = make("span", "swatch");
      Object.assign(swatch.style, { borderColor: row.colour, borderStyle: row.dash ? "dashed" : "solid" });
      if (row.under) swatch.style.borderWidth = "0 0 3px";
      if (row.fill) swatch.style.background = row.colour + "40";
      line.insertBefore(swatch, line.lastChild);
      line.append(make("span", "count", String(row.count)));
    }
    return line;
  });
  menu.querySelector(".sheet").replaceChildren(...lines);
}
