// Where things are: the shared view of both panes, hit tests. Page coordinates are pixels of the page.

// Zoom of each page by image id. Lives as long as the browser tab: it outlasts reruns and remounts.
const VIEWS = new Map();

const ZOOM_LIMIT = 16;
const SLOP = 3; // screen pixels around a box that still count as a hit

function clamp(value, low, high) {
  return Math.min(high, Math.max(low, value));
}

function fittedScale(size, image) {
  return Math.min((size.width - 20) / image.width, (size.height - 20) / image.height);
}

// The view of a page: `scale` screen px per page px, (x, y) the page point in the middle of a pane.
function viewOf(image) {
  if (!VIEWS.has(image.id)) VIEWS.set(image.id, { fit: true, scale: 1, x: image.width / 2, y: image.height / 2 });
  return VIEWS.get(image.id);
}

function refit(view, size, image) {
  if (!view.fit || size.width < 1) return;
  view.scale = Math.max(fittedScale(size, image), 0.01);
  view.x = image.width / 2;
  view.y = image.height / 2;
}

function toScreen(view, size, x, y) {
  return [(x - view.x) * view.scale + size.width / 2, (y - view.y) * view.scale + size.height / 2];
}

function toPage(view, size, x, y) {
  return [(x - size.width / 2) / view.scale + view.x, (y - size.height / 2) / view.scale + view.y];
}

// Zooms by `factor` so that the page point under (x, y) of the pane stays where it is.
function zoomAt(view, size, image, x, y, factor) {
  const [px, py] = toPage(view, size, x, y);
  const smallest = Math.min(fittedScale(size, image) * 0.5, 1);
  view.scale = clamp(view.scale * factor, smallest, ZOOM_LIMIT);
  view.fit = false;
  view.x = px - (x - size.width / 2) / view.scale;
  view.y = py - (y - size.height / 2) / view.scale;
}

function keepInSight(view, image) {
  view.x = clamp(view.x, 0, image.width);
  view.y = clamp(view.y, 0, image.height);
}

// The smallest of `items` at a page point: nested boxes stay reachable.
function itemAt(items, x, y, slop) {
  let best = null;
  let bestArea = Infinity;
  for (const item of items) {
    const { x1, y1, x2, y2 } = item.box;
    if (x < x1 - slop || x > x2 + slop || y < y1 - slop || y > y2 + slop) continue;
    const area = (x2 - x1) * (y2 - y1);
    if (area < bestArea) [best, bestArea] = [item, area];
  }
  return best;
}
