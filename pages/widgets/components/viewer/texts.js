// Everything written into the page. Model text goes in by textContent only.

const KEYS = [
  ["1 2", "texts, 2-up"],
  ["f", "fit the page"],
  ["l", "names of labels on or off"],
  ["d", "next difference"],
  ["b B", "next and previous box"],
  ["j k  \u2192 \u2190", "next and previous page"],
  ["Esc", "clear the selection"],
  ["wheel, drag", "zoom, pan"],
  ["?", "this list"],
];

function stateBadge(state) {
  const badge = make("span", "badge", STATES[state].name);
  badge.style.background = STATES[state].colour;
  return badge;
}

function fillTooltip(tooltip, { side, box, state, pair }) {
  const head = make("div");
  head.append(make("b", "", box.label), " ", stateBadge(state));
  const overlap = pair.iou === null ? "" : `  IoU ${pair.iou.toFixed(3)}`;
  const facts = `${side.toUpperCase()}  ${box.x1}, ${box.y1} \u2013 ${box.x2}, ${box.y2} px${overlap}`;
  const text = box.text.length > 240 ? `${box.text.slice(0, 240)}\u2026` : box.text || "no text";
  tooltip.replaceChildren(head, make("div", "facts", facts), make("div", "text", text));
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
    backgroundSize: `${100 * width / across}% ${100 * height / down}%`,
    backgroundPosition: `${100 * box.x1 / Math.max(width - across, 1)}% ${100 * box.y1 / Math.max(height - down, 1)}%`,
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
      cell.append(make("b", "", viewer.names[side]), " ", make("span", "", viewer.sides[side].summary));
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

// The menu of what is shown: rows of {name, on, change}, those of a state with {count, colour, dash, under}.
function fillMenu(sheet, rows) {
  sheet.replaceChildren(...rows.map(({ name, on, change, count, colour, dash, under }) => {
    const line = make("label");
    const tick = Object.assign(make("input"), { type: "checkbox", checked: on });
    tick.addEventListener("change", () => change(tick.checked));
    line.append(tick);
    if (colour) {
      const swatch = make("span", "swatch");
      Object.assign(swatch.style, { borderColor: colour, borderStyle: dash.length ? "dashed" : "solid" });
      if (under) swatch.style.borderWidth = "0 0 3px";
      line.append(swatch);
    }
    line.append(make("span", "", name));
    if (count) line.append(make("span", "count", String(count)));
    return line;
  }));
}
