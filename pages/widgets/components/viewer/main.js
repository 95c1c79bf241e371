// The viewer: two panes on one page with one view, one selection, one set of filters.

const INSTANCES = new WeakMap();
const MODES = ["texts", "2-up"];

class Viewer {
  constructor(root) {
    this.root = root;
    this.abort = new AbortController();
    this.hidden = new Set(); // states of boxes
    this.showLabels = true; // the names of labels beside their boxes
    this.mode = "texts";
    this.selected = null;
    this.hovered = null;
    this.names = { a: "A", b: "B" };
    this.actions = []; // what the page around the viewer has not taken yet
    this.sent = { selected: [], mode: [] }; // values on their way to Python: their echo is not news
    this.adopted = {};
    this.pairs = [];
    this.items = { a: [], b: [] };
    this.panes = SIDES.map((side) => {
      const pane = root.querySelector(`.pane[data-side="${side}"]`);
      const stage = pane.querySelector(".stage");
      return { side, pane, stage, image: stage.querySelector("img"), canvas: stage.querySelector("canvas") };
    });
    this.find = (selector) => root.querySelector(selector);
    this.listen();
    root.locate = (side, index) => locate(this, side, index);
    VIEWERS.add(this);
  }

  listen() {
    const { signal } = this.abort;
    const on = (target, type, handler, more) => target.addEventListener(type, handler, { signal, ...more });
    on(document, "pointerdown", (event) => {
      this.clicked = true;
      this.closeMenus(event);
    });
    on(this.find(".toolbar"), "click", (event) => {
      const button = event.target.closest("button");
      if (button?.dataset.mode) this.setMode(button.dataset.mode);
      if (button?.dataset.act) this.act(button.dataset.act);
    });
    for (const pane of this.panes) {
      on(pane.image, "error", () => retryPicture(pane));
      on(pane.image, "load", () => this.schedule());
      on(pane.stage, "wheel", (event) => this.wheel(event, pane), { passive: false });
      on(pane.stage, "pointerdown", (event) => this.press(event, pane));
      on(pane.stage, "pointermove", (event) => this.move(event, pane));
      on(pane.stage, "pointerleave", () => this.hover(null));
      on(pane.stage, "dblclick", () => this.act("fit"));
      on(pane.pane.querySelector(".notice button"), "click", ({ target }) => this.fire("run", target.dataset.run));
    }
    on(this.find(".texts"), "click", (event) => {
      const row = event.target.closest(".row[data-box]");
      if (row && !getSelection().toString()) this.select(Number(row.dataset.box), true);
    });
    this.resizes = new ResizeObserver(() => this.schedule());
    for (const pane of this.panes) this.resizes.observe(pane.stage);
  }

  destroy() {
    this.abort.abort();
    VIEWERS.delete(this);
    gone = Date.now();
    this.resizes.disconnect();
    INSTANCES.delete(this.root);
  }

  // --- data from Python ---------------------------------------------------------------------------

  update(data, setState, setTrigger) {
    this.setState = setState;
    this.fire = setTrigger;
    const page = data.image.id !== this.image?.id;
    this.image = data.image;
    this.names = data.names;
    this.divergence = data.divergence;
    this.around = data.around;
    this.asks = data.around ?? data.turns;
    this.actions = this.actions.filter(({ n }) => n > this.asks.taken);
    if (this.around) {
      const { field, at } = this.around.ask ?? { at: 0 };
      // Only after a click: keys that were pressed meanwhile meant something else.
      if (at > (this.asked ?? at) && this.clicked) document.querySelector(`.st-key-${field} input`)?.focus();
      this.asked = at;
      if (!this.around.keys.some((key) => key.act && key.field)) waitForName(null);
      if (this.around.cookie) document.cookie = `${this.around.cookie}; path=/; max-age=31536000; samesite=strict`;
    }
    const more = (this.around?.keys ?? []).map(({ key, does }) => [key, does]);
    fillKeys(this.find(".keys"), more);
    this.sides = data.sides;
    this.pairs = data.pairs;
    this.loose = data.loose;
    this.colours = data.colours;
    for (const pane of this.panes) {
      showPicture(pane, data.image);
      describe(pane, this.names[pane.side], data.sides[pane.side]);
    }
    if (page) {
      // A selection belongs to its page: no echo of the last page's is awaited, and whatever Python says here is news.
      this.hovered = null;
      this.sent.selected = [];
      delete this.adopted.selected;
    }
    const said = this.find(".said");
    if (said.textContent !== data.said) said.textContent = data.said; // read aloud when it is another
    this.adopt("mode", data.mode, MODES.includes(data.mode), (mode) => (this.mode = mode));
    this.adopt("selected", data.selected, true, (index) => (this.selected = index));
    if (this.selected !== null && !this.pairs[this.selected]) this.selected = null;
    const { index, count, first, last } = data.position;
    this.find(".position").textContent = `${index < 0 ? "\u2013" : index + 1} / ${count}`;
    this.find('[data-act="previous-page"]').disabled = first ?? count < 2;
    this.find('[data-act="next-page"]').disabled = last ?? count < 2;
    this.differences = this.pairs.map((pair, index) => index).filter((index) => this.pairs[index].differs);
    const next = this.find('[data-act="next-difference"]');
    next.disabled = !this.differences.length;
    next.textContent = this.differences.length
      ? `${this.differences.length} box${this.differences.length > 1 ? "es" : ""} differ${this.differences.length > 1 ? "" : "s"} \u203a`
      : "No box differs";
    next.hidden = !this.pairs.some((pair) => pair.state !== "single");
    this.fillMenus();
    this.refilter();
    fillTexts(this.find(".texts"), this);
    this.schedule();
  }

  // Takes a value from Python unless it is the echo of one sent from here.
  adopt(name, value, valid, take) {
    const at = this.sent[name].indexOf(value);
    if (at >= 0) this.sent[name].splice(0, at + 1);
    else if (valid && this.adopted[name] !== value) take(value);
    this.adopted[name] = value;
  }

  send(name, value) {
    this.sent[name].push(value);
    // A number makes the same row of another page a change; clocks stand still or go back.
    this.number = Math.max(Date.now(), (this.number ?? 0) + 1);
    this.setState(name, name === "selected" ? { row: value, n: this.number } : value);
  }

  fillMenus() {
    const counts = new Map();
    for (const { state } of this.pairs) counts.set(state, (counts.get(state) ?? 0) + 1);
    const states = Object.entries(STATES).filter(([key]) => counts.has(key)).map(([key, state]) => ({
      ...state, count: counts.get(key), on: !this.hidden.has(key),
      change: (on) => {
        this.hidden[on ? "delete" : "add"](key);
        this.refilter();
      },
    }));
    const names = { name: "names of labels", on: this.showLabels, change: () => this.act("labels") };
    fillMenu(this.find(".sheet"), [names, ...states]);
  }

  refilter() {
    for (const side of SIDES) {
      const other = side === "a" ? "b" : "a";
      this.items[side] = [];
      this.pairs.forEach((pair, index) => {
        const box = pair[side];
        if (!box || this.hidden.has(pair.state)) return;
        const colour = this.colours[box.label] ?? "#64748b";
        this.items[side].push({ side, index, pair, box, partner: pair[other], state: pair.state, colour });
      });
      // Differences lie on top.
      this.items[side].sort((a, b) => a.pair.differs - b.pair.differs);
    }
    this.schedule();
  }

  // --- what the user does -------------------------------------------------------------------------

  setMode(mode) {
    if (mode === this.mode) return;
    this.mode = mode;
    this.send("mode", mode);
    this.schedule();
  }

  select(index, reveal) {
    if (index !== this.selected) {
      this.selected = index;
      this.send("selected", index);
      fillTexts(this.find(".texts"), this);
    }
    if (reveal && index !== null) this.reveal(this.pairs[index].a ?? this.pairs[index].b);
    this.schedule();
  }

  reveal(box) {
    const view = viewOf(this.image);
    const size = sizeOf(this.panes[0]);
    const [left, top] = toScreen(view, size, box.x1, box.y1);
    const [right, bottom] = toScreen(view, size, box.x2, box.y2);
    if (left >= 0 && top >= 0 && right <= size.width && bottom <= size.height) return;
    view.fit = false;
    [view.x, view.y] = [(box.x1 + box.x2) / 2, (box.y1 + box.y2) / 2];
  }

  act(name) {
    const view = viewOf(this.image);
    if (name === "fit") view.fit = true;
    if (name === "actual") {
      Object.assign(view, { fit: false, scale: 1 });
      if (this.selected !== null) this.reveal(this.pairs[this.selected].a ?? this.pairs[this.selected].b);
    }
    if (name === "labels") this.showLabels = !this.showLabels;
    if (name === "next-page") this.actAround("next");
    if (name === "previous-page") this.actAround("previous");
    if (name === "keys") this.find(".keys").hidden = !this.find(".keys").hidden;
    if (name === "next-difference" && this.differences.length) {
      const next = this.differences.find((index) => this.selected === null || index > this.selected);
      this.select(next ?? this.differences[0], true);
    }
    if (/^(next|previous)-box$/.test(name) && this.pairs.length) {
      const by = name === "next-box" ? 1 : -1;
      const from = this.selected ?? (by > 0 ? -1 : 0);
      this.select((from + by + this.pairs.length) % this.pairs.length, true);
    }
    if (name === "labels") this.fillMenus();
    this.schedule();
  }

  // For the page around the viewer. Every action is sent until Python says that it has taken it, so that none is
  // lost or falls on another page than the one in sight, however fast they come.
  actAround(act, subject = this.asks.subject) {
    const { taken } = this.asks;
    const n = Math.max(Date.now(), taken + 1, (this.actions.at(-1)?.n ?? 0) + 1);
    this.actions = [...this.actions, { n, act, subject }];
    this.setState("actions", this.actions);
  }

  keyAround(event) {
    const key = this.around?.keys.find(({ key }) => key === event.key);
    if (!key) return false;
    if (key.act) {
      this.actAround(key.act);
      this.askName(key);
    } else if (key.field) fieldOf(key)?.focus();
    return true;
  }

  // Without a name what is said leads to its field. A name that stands there is on its way: no key after it is typed.
  askName(key) {
    if (!key.field || fieldOf(key)?.value.trim()) return;
    waitForName(key); // the field may come later than the viewer
    fieldOf(key)?.focus();
  }

  key(event) {
    this.clicked = false;
    const target = event.composedPath()[0];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    // Out of a field of the page around and back to the keys.
    if (this.around && /^(Enter|Escape)$/.test(event.key) && target.closest?.(this.around.fields)) {
      // A name goes as an action too: the field may be drawn anew before its value is sent.
      if (event.key === "Enter" && target === fieldOf(this.around.ask)) this.actAround("named", target.value);
      waitForName(null);
      target.blur(); // at once: the next key is none of the field's
      return;
    }
    if (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT|CANVAS)$/.test(target.tagName)) return;
    const idle = target === document.body || this.root.contains(target);
    const acts = { f: "fit", l: "labels", b: "next-box", B: "previous-box", d: "next-difference", j: "next-page", k: "previous-page", "?": "keys" };
    const arrows = { ArrowRight: "next-page", ArrowLeft: "previous-page" };
    if (this.keyAround(event)) event.preventDefault();
    else if (event.key >= "1" && event.key <= "2") this.setMode(MODES[event.key - 1]);
    else if (acts[event.key]) this.act(acts[event.key]);
    else if (idle && arrows[event.key]) this.act(arrows[event.key]);
    else if (event.key === "Escape") {
      if (this.find(".keys").hidden) this.select(null);
      this.find(".keys").hidden = true;
    } else return;
    event.preventDefault();
  }

  closeMenus(event) {
    const path = event.composedPath();
    for (const menu of this.root.querySelectorAll("details[open]")) if (!path.includes(menu)) menu.open = false;
    const keys = this.find(".keys");
    if (!path.includes(keys) && !path.includes(this.find('[data-act="keys"]'))) keys.hidden = true;
  }

  wheel(event, pane) {
    event.preventDefault();
    const at = pane.stage.getBoundingClientRect();
    const steps = event.deltaMode === 1 ? event.deltaY * 18 : event.deltaY;
    const factor = Math.exp(-clamp(steps, -240, 240) * 0.0016);
    zoomAt(viewOf(this.image), sizeOf(pane), this.image, event.clientX - at.left, event.clientY - at.top, factor);
    this.schedule();
  }

  press(event, pane) {
    if (event.button !== 0 || event.target.closest(".notice")) return;
    this.root.focus({ preventScroll: true });
    pane.stage.setPointerCapture(event.pointerId);
    this.drag = { x: event.clientX, y: event.clientY, moved: false };
    const end = () => {
      pane.stage.removeEventListener("pointerup", release);
      pane.stage.removeEventListener("pointercancel", end);
      this.drag = null;
    };
    const release = (up) => {
      if (!this.drag.moved) this.select(itemUnder(this, up, pane)?.index ?? null);
      end();
    };
    pane.stage.addEventListener("pointerup", release);
    pane.stage.addEventListener("pointercancel", end);
  }

  move(event, pane) {
    if (!this.drag) {
      this.hover(event.target.closest(".notice") ? null : itemUnder(this, event, pane), event);
      return;
    }
    const [dx, dy] = [event.clientX - this.drag.x, event.clientY - this.drag.y];
    if (!this.drag.moved && Math.hypot(dx, dy) < 4) return;
    const view = viewOf(this.image);
    this.hover(null);
    view.fit = false;
    view.x -= dx / view.scale;
    view.y -= dy / view.scale;
    keepInSight(view, this.image);
    this.drag = { x: event.clientX, y: event.clientY, moved: true };
    this.schedule();
  }

  hover(item, event) {
    const tooltip = this.find(".tooltip");
    for (const pane of this.panes) pane.stage.classList.toggle("over-box", Boolean(item));
    if (item?.index !== this.hovered?.index || item?.side !== this.hovered?.side) {
      this.hovered = item;
      if (item) fillTooltip(tooltip, item);
      this.schedule();
    }
    tooltip.hidden = !item;
    if (!item) return;
    const { width, height } = tooltip.getBoundingClientRect();
    tooltip.style.left = `${clamp(event.clientX + 14, 4, window.innerWidth - width - 4)}px`;
    const below = event.clientY + 18;
    tooltip.style.top = `${below + height > window.innerHeight - 4 ? event.clientY - height - 12 : below}px`;
  }

  // --- drawing ------------------------------------------------------------------------------------

  schedule() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = null;
      if (this.image) this.draw();
    });
  }

  draw() {
    const view = viewOf(this.image);
    this.root.dataset.mode = this.mode;
    for (const button of this.root.querySelectorAll(".modes button")) {
      button.setAttribute("role", "radio");
      button.setAttribute("aria-checked", String(button.dataset.mode === this.mode));
    }
    refit(view, sizeOf(this.panes[0]), this.image);
    for (const pane of this.panes) if (this.mode === "2-up" || pane.side === "a") drawPane(this, pane, view);
    this.find(".zoom").textContent = `${Math.round(view.scale * 100)} %`;
    writeHeaders(this);
    writeNotices(this);
    Object.assign(this.root.dataset, {
      image: this.image.id,
      scale: view.scale.toFixed(4),
      selected: this.selected ?? "",
      a: this.items.a.length,
      b: this.items.b.length,
    });
  }
}

// Keys that come while a rerun replaces the viewer wait for the next one, if it comes soon and on the same page.
const VIEWERS = new Set();
const WAITING_MS = 2000;
let waiting = [];
let gone = 0;

function takeKey(event) {
  const there = [...VIEWERS].filter(({ root, image }) => root.isConnected && image);
  if (there.length) return there.forEach((viewer) => viewer.key(event));
  if (!VIEWERS.size && Date.now() - gone > WAITING_MS) return;
  const { key, ctrlKey, metaKey, altKey, shiftKey } = event;
  const path = event.composedPath();
  const kept = { key, ctrlKey, metaKey, altKey, shiftKey, composedPath: () => path, preventDefault() {} };
  waiting.push({ kept, at: Date.now(), page: location.pathname });
}

document.addEventListener("keydown", takeKey);

function takeWaiting(viewer) {
  const keys = waiting.filter(({ at, page }) => Date.now() - at < WAITING_MS && page === location.pathname);
  waiting = [];
  for (const { kept } of keys) viewer.key(kept);
}

// The key whose field waits for the reviewer's name. A field that is drawn anew has lost the focus, and gets it back
// until the name is written or something else is clicked; the viewer too may be another one by then.
let naming = null;
const REDRAWN = new MutationObserver(() => {
  if (naming && document.activeElement === document.body) fieldOf(naming)?.focus();
});

function waitForName(key) {
  naming = key;
  if (key) REDRAWN.observe(document.body, { childList: true, subtree: true });
  else REDRAWN.disconnect();
}

addEventListener("pointerdown", () => waitForName(null), true);

function fieldOf({ field }) {
  return document.querySelector(`.st-key-${field} input`);
}

function show(component) {
  const root = component.parentElement.querySelector(".viewer");
  const viewer = INSTANCES.get(root) ?? new Viewer(root);
  INSTANCES.set(root, viewer);
  viewer.update(component.data, component.setStateValue, component.setTriggerValue);
  takeWaiting(viewer);
  // Streamlit also runs this after a call that newer data overtook: only a viewer that has left the page ends.
  return () => {
    if (!root.isConnected) viewer.destroy();
  };
}
