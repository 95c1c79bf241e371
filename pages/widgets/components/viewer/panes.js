// The two panes: what each shows in which mode, where that lies on the screen, how it is drawn.

const SIDES = ["a", "b"];

// The last pictures shown, oldest first. A browser asks again for a picture that no element holds any more.
const PICTURES = new Map();
const MOST_PICTURES = 24;
const MOST_TRIES = 5;

function showPicture(pane, { url: asked, width, height }) {
  const url = served(asked);
  if (pane.image.getAttribute("src") !== url) {
    pane.image.src = url;
    pane.tries = 1;
  }
  pane.image.style.width = `${width}px`;
  pane.image.style.height = `${height}px`;
  const held = PICTURES.get(url) ?? Object.assign(new Image(), { src: url });
  PICTURES.delete(url);
  PICTURES.set(url, held);
  if (PICTURES.size > MOST_PICTURES) PICTURES.delete(PICTURES.keys().next().value);
}

// The server forgets the picture of a page that was left before the browser asked for it, and has it again when the
// page comes back: soon, then less and less often.
function retryPicture(pane) {
  const url = pane.image.getAttribute("src");
  if (pane.tries >= MOST_TRIES) return;
  setTimeout(() => {
    if (pane.image.getAttribute("src") === url) pane.image.src = url;
  }, 100 * 2 ** pane.tries);
  pane.tries += 1;
}

function describe(pane, name, side) {
  pane.pane.querySelector("header b").textContent = name;
  pane.pane.querySelector("header span").textContent = side.summary;
  pane.pane.querySelector("header").title = `${name}: ${side.summary}`;
  pane.image.alt = `The page with the boxes of ${name}`;
}

function sizeOf(pane) {
  return { width: pane.stage.clientWidth, height: pane.stage.clientHeight };
}

function itemUnder(viewer, event, pane) {
  const at = pane.stage.getBoundingClientRect();
  const view = viewOf(viewer.image);
  const [x, y] = toPage(view, sizeOf(pane), event.clientX - at.left, event.clientY - at.top);
  const items = layersOf(viewer, pane).flatMap((layer) => layer.items);
  return itemAt(items, x, y, SLOP / view.scale);
}

// What a pane shows in this mode: items with the way they are drawn.
function layersOf(viewer, pane) {
  const { a, b } = viewer.items;
  if (viewer.mode === "2-up") return [{ items: viewer.items[pane.side] }];
  if (pane.side === "b") return [];
  // Boxes that are equal on both sides are drawn once.
  return [{ items: b.filter(({ pair }) => !pair.a || pair.shift), dotted: true }, { items: a }];
}

// Middle of a box on the screen, in client coordinates; null when that pane does not show it.
function locate(viewer, side, index) {
  const pane = viewer.panes[viewer.mode === "2-up" ? SIDES.indexOf(side) : 0];
  const box = viewer.pairs[index]?.[side];
  if (!box) return null;
  const at = pane.stage.getBoundingClientRect();
  const view = viewOf(viewer.image);
  const [x, y] = toScreen(view, sizeOf(pane), (box.x1 + box.x2) / 2, (box.y1 + box.y2) / 2);
  return { x: at.left + x, y: at.top + y };
}

function drawPane(viewer, pane, view) {
  const size = sizeOf(pane);
  const [left, top] = toScreen(view, size, 0, 0);
  pane.image.style.transform = `translate(${left}px, ${top}px) scale(${view.scale})`;
  const context = beginDrawing(pane.canvas, size);
  const late = [];
  for (const layer of layersOf(viewer, pane)) {
    for (const item of layer.items) {
      const selected = item.index === viewer.selected;
      const hovered = item.index === viewer.hovered?.index;
      const style = { selected, hovered, dotted: layer.dotted, label: viewer.showLabels && !(layer.dotted && item.partner) };
      if (selected) late.push([item, style]);
      else drawItem(context, view, size, item, style);
    }
    for (const [item, style] of late.splice(0)) drawItem(context, view, size, item, style);
    for (const item of layer.items) drawMarks(context, view, size, viewer, item);
  }
}

function writeHeaders(viewer) {
  const [first] = viewer.panes;
  if (viewer.mode === "2-up") return describe(first, viewer.names.a, viewer.sides.a);
  first.pane.querySelector("header b").textContent = "A and B";
  first.pane.querySelector("header span").textContent = "B dotted where it is elsewhere";
}

// Where one pane stands for both sides it has the notice of the side that has one.
function writeNotices(viewer) {
  const { a, b } = viewer.sides;
  for (const pane of viewer.panes) {
    const { message, action, action_words: words } = viewer.mode === "2-up" ? viewer.sides[pane.side] : a.message ? a : b;
    const notice = pane.stage.querySelector(".notice");
    notice.hidden = !message;
    notice.querySelector("p").textContent = message ?? "";
    const button = notice.querySelector("button");
    button.hidden = !action;
    button.textContent = action ? words : "";
    button.dataset.run = action;
  }
}
