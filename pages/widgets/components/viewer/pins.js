// Comments pinned to regions of the page, for a page around the viewer that keeps them. Their words are a stranger's:
// they enter by textContent only.

// The badges, one a pin, over the pane of A; drawing puts them at the corner of their region.
function fillPins(viewer) {
  viewer.pins = viewer.around?.pins ?? [];
  viewer.find('[data-act="pin"]').hidden = !viewer.around;
  const badges = viewer.pins.map((pin) => {
    const badge = make("button", "pin", String(pin.number));
    badge.title = `${pin.who}: ${pin.words}`;
    badge.setAttribute("aria-label", `Pinned comment ${pin.number}, ${badge.title}`);
    badge.addEventListener("click", () => openNote(viewer, pin, pin));
    return badge;
  });
  viewer.find(".pins").replaceChildren(...badges);
}

function drawPins(viewer, pane, context, view) {
  const size = sizeOf(pane);
  const regions = viewer.drawing ? [...viewer.pins, viewer.drawing] : viewer.pins;
  context.strokeStyle = "#0f766e";
  context.lineWidth = 2;
  context.setLineDash([2, 2]);
  regions.forEach((region, at) => {
    const [left, top] = toScreen(view, size, region.x1, region.y1);
    const [right, bottom] = toScreen(view, size, region.x2, region.y2);
    context.strokeRect(left - 4, top - 4, right - left + 8, bottom - top + 8);
    const badge = pane.side === "a" && viewer.find(".pins").children[at];
    if (badge) badge.style.translate = `${Math.round(right + 6)}px ${Math.round(top - 8)}px`;
  });
  context.setLineDash([]);
}

// `pin` where one that is there is read; else the comment is yet to be written.
function openNote(viewer, region, pin) {
  const form = viewer.find(".note");
  const [words, field, keep, back] = ["p", "input", '[type="submit"]', ".back"].map((part) => form.querySelector(part));
  const [pane] = viewer.panes;
  const [outer, inner] = [viewer.root, pane.stage].map((part) => part.getBoundingClientRect());
  const [x, low] = toScreen(viewOf(viewer.image), sizeOf(pane), region.x1, region.y2);
  const [, high] = toScreen(viewOf(viewer.image), sizeOf(pane), region.x1, region.y1);
  words.textContent = pin ? `${pin.who}: ${pin.words}` : "";
  for (const part of [field, keep]) part.hidden = Boolean(pin);
  back.hidden = !pin?.own;
  field.value = "";
  viewer.drawing = pin ? null : region;
  form.hidden = false;
  form.style.left = `${clamp(inner.left - outer.left + x, 8, Math.max(8, outer.width - form.offsetWidth - 8))}px`;
  // Under its region; over it where there is no room.
  const under = low + 14 + form.offsetHeight <= inner.height;
  form.style.top = `${inner.top - outer.top + Math.max(under ? low + 14 : high - 18 - form.offsetHeight, 0)}px`;
  (pin ? form.querySelector(".close") : field).focus();
  form.onsubmit = (event) => {
    event.preventDefault();
    if (!field.value.trim()) return;
    const corners = [region.x1, region.y1, region.x2, region.y2].map(Math.round);
    viewer.actAround("pin", { region: [viewer.around.sheet, ...corners].join(","), words: field.value });
    closeNote(viewer);
    viewer.askName();
  };
  back.onclick = () => {
    viewer.actAround("unpin", { region: pin.id });
    closeNote(viewer);
  };
  form.querySelector(".close").onclick = () => closeNote(viewer);
  form.onkeydown = (event) => {
    event.stopPropagation(); // no page is turned
    if (event.key === "Escape") closeNote(viewer);
  };
  viewer.schedule();
}

function closeNote(viewer) {
  viewer.find(".note").hidden = true;
  viewer.drawing = null;
  viewer.root.focus({ preventScroll: true });
  viewer.schedule();
}

// A region as it is drawn; too small a one is a click.
function drawRegion(viewer, event, pane) {
  const at = (move) => {
    const edge = pane.stage.getBoundingClientRect();
    const [x, y] = toPage(viewOf(viewer.image), sizeOf(pane), move.clientX - edge.left, move.clientY - edge.top);
    return [clamp(x, 0, viewer.image.width), clamp(y, 0, viewer.image.height)];
  };
  const [x, y] = at(event);
  const abort = new AbortController();
  const end = () => {
    abort.abort();
    viewer.setPinning(false);
  };
  const follow = (move) => {
    const [toX, toY] = at(move);
    viewer.drawing = { x1: Math.min(x, toX), y1: Math.min(y, toY), x2: Math.max(x, toX), y2: Math.max(y, toY) };
    viewer.schedule();
  };
  const release = () => {
    const region = viewer.drawing;
    viewer.drawing = null;
    end();
    if (region && region.x2 - region.x1 >= 2 && region.y2 - region.y1 >= 2) openNote(viewer, region);
    viewer.schedule();
  };
  pane.stage.setPointerCapture(event.pointerId);
  pane.stage.addEventListener("pointermove", follow, { signal: abort.signal });
  pane.stage.addEventListener("pointerup", release, { signal: abort.signal });
  pane.stage.addEventListener("pointercancel", end, { signal: abort.signal });
}
