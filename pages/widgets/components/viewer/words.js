// Where the words of a box's text stand on the page: lines of ink in the picture take the text by their share of it.

const PEN = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const TEXT_FONT = "sans-serif";
const MOST_SIDE = 700; // pixels of a box's picture that are looked at each way
const LINES = new WeakMap(); // a box -> {picture, lines}: they stay while its picture does

function inkedRows({ data, width, height }) {
  const light = new Uint8Array(width * height);
  const often = new Uint32Array(16);
  for (let at = 0; at < light.length; at += 1) {
    light[at] = (data[4 * at] * 77 + data[4 * at + 1] * 150 + data[4 * at + 2] * 29) >> 8;
    often[light[at] >> 4] += 1;
  }
  const ground = often.indexOf(Math.max(...often)) * 16 + 8;
  const rows = [];
  for (let y = 0; y < height; y += 1) {
    let left = -1;
    let right = -1;
    for (let x = 0; x < width; x += 1) {
      if (Math.abs(light[y * width + x] - ground) < 70) continue;
      if (left < 0) left = x;
      right = x;
    }
    rows.push(left < 0 ? null : [left, right + 1]);
  }
  return rows;
}

// Lines of ink in a box, in pixels of the page: {x, y, width, height}. Empty where the picture shows none.
function inkLines(picture, image, box) {
  if (!picture.complete || !picture.naturalWidth) return [];
  const [width, height] = [box.x2 - box.x1, box.y2 - box.y1];
  const zoom = Math.min(1, MOST_SIDE / Math.max(width, height));
  const size = [Math.max(1, Math.round(width * zoom)), Math.max(1, Math.round(height * zoom))];
  [PEN.canvas.width, PEN.canvas.height] = size;
  const natural = [picture.naturalWidth / image.width, picture.naturalHeight / image.height];
  PEN.drawImage(picture, box.x1 * natural[0], box.y1 * natural[1], width * natural[0], height * natural[1], 0, 0, ...size);
  const found = [];
  let open = null;
  inkedRows(PEN.getImageData(0, 0, ...size)).forEach((row, y) => {
    if (row && open) Object.assign(open, { left: Math.min(open.left, row[0]), right: Math.max(open.right, row[1]), bottom: y + 1 });
    else if (row) found.push((open = { left: row[0], right: row[1], top: y, bottom: y + 1 }));
    else open = null;
  });
  const tallest = Math.max(0, ...found.map(({ top, bottom }) => bottom - top));
  // Dots, accents and rules by themselves are no lines.
  return found.filter(({ top, bottom }) => bottom - top > tallest * 0.4 && bottom - top > 2).map(({ left, right, top, bottom }) => ({
    x: box.x1 + left / zoom, y: box.y1 + top / zoom, width: (right - left) / zoom, height: (bottom - top) / zoom,
  }));
}

// Without ink: as many lines of one height as letters half as wide as high need.
function evenLines(box, length) {
  const [width, height] = [Math.max(box.x2 - box.x1, 1), Math.max(box.y2 - box.y1, 1)];
  const count = Math.max(1, Math.min(200, Math.round(Math.sqrt((length * 0.42 * height) / width))));
  return Array.from({ length: count }, (_, number) => ({
    x: box.x1, y: box.y1 + (number * height) / count, width, height: (height / count) * 0.85,
  }));
}

function widthOf(text) {
  PEN.font = `20px ${TEXT_FONT}`;
  return PEN.measureText(text).width;
}

// The text of a box in lines {text, start, x, y, width, height}; `start` counts its characters.
function placedLines(viewer, box) {
  const picture = viewer.panes[0].image;
  const known = LINES.get(box);
  if (known?.picture === picture.currentSrc && known.whole === picture.complete) return known.lines;
  // Where the cells of a table are is not known.
  const lines = /<t[dh]\b/i.test(box.text) ? [] : proseLines(picture, viewer.image, box);
  LINES.set(box, { picture: picture.currentSrc, whole: picture.complete, lines });
  return lines;
}

function proseLines(picture, image, box) {
  const ink = inkLines(picture, image, box);
  const places = ink.length ? ink : evenLines(box, box.text.length);
  const marked = box.text.match(/^\s*#{1,6}\s+/)?.[0].length ?? 0; // a heading's sign is not on the page
  const words = [...box.text.matchAll(/[\u3040-\u9fff]\s*|[^\s\u3040-\u9fff]+\s*/g)]
    .filter(({ index }) => index >= marked)
    .map(({ 0: text, index }) => ({ text, start: index, width: widthOf(text) }));
  const written = words.some(({ text }) => text.includes("\n")) && box.text.trim().split(/\n+/).length === places.length;
  const unit = words.reduce((sum, { width }) => sum + width, 0) / places.reduce((sum, { width }) => sum + width, 0) || 1;
  const lines = [];
  let passed = 0; // of the text's width
  let end = 0; // of the lines' width, where the line that is filled ends
  for (const word of words) {
    const line = lines.at(-1);
    const next = line && (written ? line.text.includes("\n") : (passed + word.width / 2) / unit > end);
    if (!line || (next && lines.length < places.length)) {
      end += places[lines.length].width;
      lines.push({ ...places[lines.length], text: word.text, start: word.start });
    } else line.text += word.text;
    passed += word.width;
  }
  return lines;
}

// Characters `from` to `to` of a line, as a part of its width.
function shareOf(line, from, to) {
  const whole = widthOf(line.text.trimEnd()) || 1;
  return [widthOf(line.text.slice(0, from)) / whole, Math.min(1, widthOf(line.text.slice(0, to)) / whole)];
}

// Marks {line, left, right, change} of the runs of a box in which the sides differ, as parts of a line's width.
function marksOf(viewer, item) {
  const runs = item.pair.runs?.[item.side];
  if (!runs) return [];
  const lines = placedLines(viewer, item.box);
  if (item.marks?.lines === lines) return item.marks;
  const marks = Object.assign([], { lines });
  let at = 0;
  for (const [text, change] of runs) {
    for (const line of change === "same" ? [] : lines) {
      const [from, to] = [Math.max(at, line.start) - line.start, Math.min(at + text.length, line.start + line.text.length) - line.start];
      if (from >= to || !line.text.slice(from, to).trim()) continue;
      const [left, right] = shareOf(line, from, to);
      marks.push({ line, left, right, change });
    }
    at += text.length;
  }
  if (!marks.length && lines.length) {
    // Only the other side wrote something more: here.
    const line = lines.findLast(({ start }) => start <= runs[0][0].length) ?? lines[0];
    const left = Math.min(shareOf(line, runs[0][0].length - line.start, 0)[0], 0.97);
    marks.push({ line, left, right: left + 0.03, change: "letter" });
  }
  return (item.marks = marks);
}

// Where a mark lies on the page.
function markPlace({ line, left, right }) {
  return { x: line.x + left * line.width, y: line.y, width: (right - left) * line.width, height: line.height };
}
