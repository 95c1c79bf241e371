// How boxes are drawn. Match state is the outline (colour and dash), the label is the fill.

const STATES = {
  matched: { name: "matched", colour: "#64748b", width: 1.25, dash: [] },
  moved: { name: "moved", colour: "#c77700", width: 2, dash: [] },
  relabelled: { name: "relabelled", colour: "#7c3aed", width: 2, dash: [] },
  text: { name: "text differs", colour: "#c0362c", width: 1.25, dash: [], under: true },
  only_a: { name: "only A", colour: "#2563eb", width: 2, dash: [7, 4] },
  only_b: { name: "only B", colour: "#e11d8f", width: 2, dash: [7, 4] },
  single: { name: "not compared", colour: "#64748b", width: 1.25, dash: [] },
};

const LABEL_FONT = "10.5px system-ui, sans-serif";
const labelWidths = new Map();

function readableOn(colour) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return r * 0.299 + g * 0.587 + b * 0.114 > 150 ? "#111" : "#fff";
}

// Strokes lie outside of the box, those of the selected one beyond its letters' tails: none covers text.
function drawItem(context, view, size, item, { selected, hovered, dotted, label }) {
  const [left, top] = toScreen(view, size, item.box.x1, item.box.y1);
  const [right, bottom] = toScreen(view, size, item.box.x2, item.box.y2);
  if (right < 0 || bottom < 0 || left > size.width || top > size.height) return;
  const width = Math.max(right - left, 1);
  const height = Math.max(bottom - top, 1);
  const style = STATES[item.state];
  const outline = (apart) => context.strokeRect(left - apart, top - apart, width + 2 * apart, height + 2 * apart);

  context.globalAlpha = selected || hovered ? 0.18 : 0.12;
  context.fillStyle = item.colour;
  context.fillRect(left, top, width, height);
  context.globalAlpha = 1;

  if (selected) {
    context.setLineDash([]);
    context.lineWidth = 6;
    context.strokeStyle = "rgb(255 255 255 / .85)";
    outline(6);
  }
  context.setLineDash(dotted && item.partner ? [2, 3] : style.dash);
  context.lineWidth = selected ? 4 : hovered ? style.width + 1.5 : style.width;
  context.strokeStyle = style.under && !selected ? STATES.matched.colour : style.colour;
  outline(selected ? 6 : 1 + context.lineWidth / 2);
  if (style.under && !selected) {
    context.fillStyle = style.colour;
    context.fillRect(left - 2, bottom + 2, width + 4, 2);
  }

  if (item.state === "moved" && item.partner && !dotted) drawArrow(context, view, size, item, style.colour);
  if (label && (height >= 7 || selected)) drawName(context, item, [left - 2, top, right, bottom], size, selected || hovered);
}

// Under what this side has alone.
function drawMarks(context, view, size, viewer, item) {
  context.setLineDash([]);
  context.fillStyle = STATES.text.colour;
  for (const mark of marksOf(viewer, item)) {
    const place = markPlace(mark);
    const [left, top] = toScreen(view, size, place.x, place.y);
    if (left > size.width || top > size.height) continue;
    const width = Math.max(place.width * view.scale, 2);
    const height = place.height * view.scale;
    if (left + width < 0 || top + height < 0) continue;
    context.globalAlpha = 0.3;
    context.fillRect(left, top, width, height);
    context.globalAlpha = 1;
    context.fillRect(left, top + height, width, 3);
  }
}

// From the box to where the other side put it, with a dot at that end; at least 16 px long, or a small shift is invisible.
function drawArrow(context, view, size, item, colour) {
  const middle = (box) => toScreen(view, size, (box.x1 + box.x2) / 2, (box.y1 + box.y2) / 2);
  const [[x, y], [toX, toY]] = [middle(item.box), middle(item.partner)];
  const distance = Math.max(Math.hypot(toX - x, toY - y), 0.01);
  const length = Math.max(distance, 16) / distance;
  const end = [x + (toX - x) * length, y + (toY - y) * length];
  context.setLineDash([]);
  context.lineWidth = 2;
  context.strokeStyle = context.fillStyle = colour;
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(...end);
  context.stroke();
  context.beginPath();
  context.arc(...end, 4, 0, 2 * Math.PI);
  context.fill();
}

// The name stands beside its box, where it hides no text of it: on the left, else on the right. Where neither has room,
// that of the box that is asked about stands under it, beyond its stroke; others have none.
function drawName(context, item, [left, top, right, bottom], size, asked) {
  const overlap = item.state === "moved" && item.pair.iou !== null ? `  IoU ${item.pair.iou.toFixed(2)}` : "";
  const name = item.box.label.slice(0, 40) + overlap;
  if (!labelWidths.has(name)) labelWidths.set(name, context.measureText(name).width);
  const width = labelWidths.get(name) + 8;
  const beside = left - width >= 0 ? left - width : right + width <= size.width ? right : null;
  if (beside === null && !asked) return;
  const x = beside ?? Math.max(Math.min(right, size.width) - width, 0);
  const y = Math.max(beside === null ? Math.min(bottom + 8, size.height - 14) : top, 0);
  context.globalAlpha = 0.88;
  context.fillStyle = item.colour;
  context.fillRect(x, y, width, 14);
  context.globalAlpha = 1;
  context.fillStyle = readableOn(item.colour);
  context.fillText(name, x + 4, y + 10.5);
}

// Fits the canvas to its element in device pixels and clears it.
function beginDrawing(canvas, size) {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [Math.round(size.width * ratio), Math.round(size.height * ratio)];
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, size.width, size.height);
  context.font = LABEL_FONT;
  return context;
}
