// The attention viewer: see attention.py. The keys stand in boxes that are shaded by their weight,
// the queries below them, and an arc joins each pair. A word that is pointed at, touched or reached
// with the arrow keys shows its own weights. The heat map is a second tab.
const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const MASKED = 4095;
const STEPS = 16;
const FAINTEST = 0.02;
const SHADE = 0.7; // of full color: words on it keep a contrast of 4.5:1 on light and dark pages
const WIDEST_ARC = 6;
const [SMALLEST_BOX, LARGEST_BOX, BETWEEN] = [19, 34, 6];
const GLIDE = 250; // milliseconds
const SHOWN_FROM = 0.005; // a smaller weight is written as 0.00, and is not written
const HATCHED = "repeating-linear-gradient(-45deg, transparent 0 4px, var(--masked) 4px 5px)";
const TOUCHED = matchMedia("(hover: none)").matches; // such a device seldom has a keyboard
const STYLE = `
~ { font-size: 14px; line-height: 1.3; max-width: 1000px; }
~ svg { display: block; overflow: visible; font-family: inherit; }
~ p { margin: 4px 0; }
~ .tabs { display: flex; width: fit-content; margin-left: auto; }
~ [role=tab] { font: inherit; font-size: 12px; color: inherit; cursor: pointer;
  background: none; border: 0; border-bottom: 2px solid transparent; padding: 3px 8px;
  min-height: 24px; }
~ [role=tab][aria-selected=true] { font-weight: bold;
  border-bottom-color: currentColor; }
~ .heads { display: flex; flex-wrap: wrap; gap: 4px; margin: 4px 0; }
~ .head { padding: 4px; border: 2px solid transparent; border-radius: 4px;
  cursor: pointer; font-size: 12px; max-width: 84px; }
~ .head.bare { max-width: none; padding: 3px 8px; }
~ .head span { display: block; overflow: hidden; text-overflow: ellipsis; }
~ .head[aria-checked=true] { border-color: currentColor; font-weight: bold; }
~ .arcs { position: relative; display: grid; align-items: center;
  grid-template-columns: max-content minmax(0, 1fr); column-gap: 10px; }
~ .gap svg { width: 100%; height: 100%; max-width: none; pointer-events: none; }
~ .side { font-size: 12px; font-style: italic; line-height: 30px; }
~ .side.key { align-self: end; }
~ .side.query { align-self: start; }
~ .gap { grid-column: 1 / -1; height: 110px; min-width: 0; }
~ [role=listbox] { display: flex; flex-wrap: wrap; justify-content: center;
  margin: 0 auto; position: static; }
~ .key[role=listbox] { padding-top: 16px; row-gap: 16px; }
~ .query[role=listbox] { padding-bottom: 16px; row-gap: 16px; }
~ .words[role=listbox] { column-gap: ${BETWEEN}px; justify-content: space-evenly; }
~ [role=listbox] hr { flex: 0 0 100%; border: 0; margin: 0 0 -16px; } /* where a line ends */
~ [role=option] { position: relative; box-sizing: border-box; height: 30px;
  display: flex; align-items: center; justify-content: center; font-weight: 600; font-size: 17px;
  line-height: 1; cursor: pointer; border-radius: 6px; border: 1px solid transparent;
  background-clip: padding-box; }
~ .letters [role=option] { width: calc(var(--box) - 2px); margin: 0 1px;
  font-size: calc(var(--box) * 0.6); font-family: ui-monospace, monospace; }
~ .words [role=option] { padding: 0 6px; max-width: 10em; }
~ .key [role=option] { border-color: color-mix(in srgb, var(--key) 60%, transparent); }
~ .word { overflow: hidden; text-overflow: ellipsis; white-space: nowrap;
  line-height: 1.3; }
~ .number { position: absolute; font-size: 11px; font-weight: normal;
  font-family: system-ui, sans-serif; font-variant-numeric: tabular-nums; white-space: nowrap; }
~ .key .number { bottom: calc(100% + 2px); }
~ .query .number { top: calc(100% + 2px); }
~ .lit .word { text-decoration: underline 2px; text-underline-offset: 3px; }
~ .struck .word { text-decoration: line-through; }
~ .blank { border-bottom: 1px dashed currentColor; cursor: default; }
~ .blank .word { visibility: hidden; }
~ .all.dim { opacity: 0.4; }
~ .scrolls { overflow-x: auto; }
~ .map { max-width: 100%; height: auto; }
~ .map text { fill: currentColor; }
~ :focus { outline: none; }
~ :focus-visible { outline: 2px solid currentColor; outline-offset: 1px; }
@media (max-width: 600px) {
  ~ .arcs { grid-template-columns: minmax(0, 1fr); }
  ~ .side { line-height: 1.3; }
  ~ .side.query { order: 1; margin-top: -6px; }
  ~ .side.query::before { content: "↑ "; }
  ~ .gap { height: 84px; }
  ~ .words [role=option] { font-size: 15px; padding: 0 3px; }
}
@media (forced-colors: active) {
  ~ .head { border-color: Canvas; }
  ~ .head[aria-checked=true] { border-color: Highlight; }
}
~ [hidden] { display: none; }
@media print { ~ .said, ~ .tabs { display: none; } }
`.replaceAll("~", ".course-attention"); // short, since each figure carries its script

eachLive("attention", (figure, data) => {
  const still = stillOf(figure);
  const alt = still.alt ?? still.getAttribute("aria-label");
  viewer(figure, { ...data, alt, numbers: decoded(data), put: (root) => still.replaceWith(root) });
});

function stillOf(figure) {
  figure.removeAttribute("tabindex"); // the picture scrolls, its successor does not
  return figure.querySelector(":scope > svg, :scope > img");
}

function decoded({ weights, levels }) {
  return Array.from({ length: weights.length / 2 }, (_, n) => {
    const level = fromDigits(weights, n);
    return level === MASKED ? null : level / levels;
  });
}

// The n-th number of two digits.
function fromDigits(digits, n) {
  return 64 * DIGITS.indexOf(digits[2 * n]) + DIGITS.indexOf(digits[2 * n + 1]);
}

// Puts a viewer on the page with `put` and returns `rest`, which sets what is lit while nothing is
// pointed at and how many queries are written. `numbers` are the weights by head, query and key,
// null where masked. `sides` names the two sides, and `head` is the head to show first. `pick` is
// called with a key that is clicked, or on which Enter or the space bar is pressed. `help` is the
// first line of text below the arcs.
function viewer(figure, {
  queries, keys, heads, note, scale, numbers, alt, put, head = 0,
  sides = { query: "queries", key: "keys" }, pick, help = "",
}) {
  const [rows, columns] = [queries.shown.length, keys.shown.length];
  let resting = rows === 1 ? { query: 0 } : {};
  let lit = resting;
  let lines = []; // of queries and of keys, from the lowest up
  let written = rows;
  let moving = []; // the arcs that are painted for what is lit
  let frame;
  // The weight of a query at a key, null where it is masked.
  const at = (query, key, of = head) => numbers[(of * rows + query) * columns + key];

  const lists = { query: words("query", queries), key: words("key", keys) };
  const everyArc = draw("g", { class: "all" });
  const litArcs = draw("g", { class: "own" });
  const curves = draw("svg", { role: "img", "aria-label": alt, fill: "none" }, everyArc, litArcs);
  const gap = make("div", { class: "gap" }, curves);
  const arcs = make("div", { class: "arcs", role: "tabpanel", "aria-label": "Arcs" },
    ...line("key"), gap, ...line("query"));
  const map = heatMap({ cell: Math.min(30, 760 / Math.max(rows, columns)), words: true });
  const mapPanel = make("div", { role: "tabpanel", "aria-label": "Map", class: "scrolls",
    tabindex: 0 }, map.svg);
  const small = rows < 5 ? [] : heads.map(() => heatMap({
    cell: (innerWidth > 600 ? 72 : 56) / Math.max(rows, columns) }));
  const said = make("p", { class: "said" });
  const panels = make("div", {}, arcs, mapPanel);
  const picked = picker();
  const one = lists.query.kind.slice(0, -1); // letter or word
  const hint = TOUCHED ? `Touch a ${one} to see its weights.`
    : `Point at a ${one}, or use Tab and the arrow keys, to see its weights.`;
  const root = make("div", { class: "course-attention", role: "group",
    "aria-label": "Attention" }, make("style", {}, STYLE), tabs(), picked.list, panels, help,
    said, make("p", { class: "note" }, note));
  listen();
  small.forEach((each, of) => each.fill(of));
  put(root);
  picked.choose(head);
  new ResizeObserver(() => redraw()).observe(arcs);
  return rest;

  // What is lit while nothing is pointed at, and how many queries are written so far.
  function rest(wanted, count = rows) {
    resting = wanted;
    written = count;
    lists.query.options.forEach((option, i) => {
      option.classList.toggle("blank", i >= written);
      option.setAttribute("aria-hidden", i >= written);
    });
    redraw();
    show({});
  }

  // A list of words: an option each, of which one can be reached with Tab.
  function words(side, { shown }) {
    const options = shown.map((word, i) => make("div", {
      role: "option", tabindex: i ? -1 : 0, ...(word.length > 10 && { title: word }),
    }, make("span", { class: "word", dir: "auto" }, word), make("span", { class: "number" })));
    const name = sides[side][0].toUpperCase() + sides[side].slice(1);
    const kind = shown.every((word) => [...word].length === 1) ? "letters" : "words";
    const list = make("div", { role: "listbox", "aria-label": name, "aria-orientation":
      "horizontal", class: `${side} ${kind}` }, ...options);
    return { list, options, kind };
  }

  function line(side) {
    return [make("span", { class: `side ${side}`, "aria-hidden": true }, sides[side]),
      make("div", {}, lists[side].list)];
  }

  function tabs() {
    const buttons = ["Arcs", "Map"].map((name) => make("button", { type: "button" }, name));
    const { list, choose } = choices("Show as", buttons, (which) => {
      figure.openTab = which;
      arcs.hidden = which === 1;
      mapPanel.hidden = which === 0;
    }, "tab");
    list.className = "tabs";
    choose(figure.openTab ?? 0);
    return list;
  }

  // The heads to choose from: with their maps, if these have four rows or more.
  function picker() {
    const options = heads.map((name, of) => make("div",
      { class: small.length ? "head" : "head bare", "aria-label": name },
      ...small.slice(of, of + 1).map((each) => each.svg), make("span", {}, name)));
    const { list, choose } = choices("Head", options, showHead);
    list.className = "heads";
    list.hidden = heads.length === 1;
    return { list, choose };
  }

  function showHead(of) {
    head = of;
    map.fill(of);
    for (const side of ["query", "key"]) {
      lists[side].options.forEach((option, i) => {
        option.setAttribute("aria-label", sentence(side, i));
      });
    }
    fillTable();
    redraw();
    show(lit);
  }

  // Fits the boxes to the page and draws every arc anew.
  function redraw() {
    for (const { list, options, kind } of Object.values(lists)) {
      const room = Math.floor(list.parentElement.getBoundingClientRect().width); // never rounded up
      if (!room) continue;
      list.querySelectorAll("hr").forEach((each) => each.remove());
      const lines = Math.ceil((options.length * SMALLEST_BOX) / room);
      const box = Math.min(LARGEST_BOX, Math.floor(room / Math.ceil(options.length / lines)));
      list.style.setProperty("--box", `${box}px`);
      const widths = options.map((option) => (kind === "letters" ? box
        : Math.ceil(option.getBoundingClientRect().width) + BETWEEN));
      for (const i of breaks(widths, room)) options[i].before(make("hr", { role: "none" }));
    }
    const below = linesOf(lists.query.options);
    lines = [...below, ...linesOf(lists.key.options)];
    // The arcs of many queries are a tangle, so only the last query is lit.
    if (below.length > 1 && !Object.keys(resting).length) {
      resting = { query: rows - 1 };
      show({});
    }
    const drawn = byLevel(head, FAINTEST,
      (query, key) => (query < written ? arc(ends(query, key)) : ""));
    everyArc.replaceChildren(...drawn.map(([level, d]) => stroke(d, (level / STEPS) * scale)));
    cancelAnimationFrame(frame);
    moving = wantedArcs();
    paint(moving);
  }

  // Shows the weights of one query, one key or one pair; {} brings back those at rest.
  function show(wanted) {
    lit = "query" in wanted || "key" in wanted ? wanted : resting;
    const { query, key } = lit;
    const all = query === undefined && key === undefined;
    everyArc.classList.toggle("dim", !all);
    glide(wantedArcs());
    for (const side of ["query", "key"]) {
      const other = side === "query" ? key : query;
      lists[side].options.forEach((option, i) => {
        const told = other !== undefined && (lit[side] ?? i) === i;
        const seen = partners(side, i);
        const blocked = told ? seen[other] === null : seen.every((each) => each === null);
        const weight = told ? seen[other] : all && side === "key" ? Math.max(...seen) : 0;
        const part = 100 * SHADE * Math.min(1, weight / scale);
        option.lastChild.textContent = told && weight >= SHOWN_FROM ? narrow(weight, side) : "";
        option.classList.toggle("struck", blocked);
        option.classList.toggle("lit", lit[side] === i);
        option.setAttribute("aria-selected", lit[side] === i);
        option.style.background = blocked ? HATCHED
          : `color-mix(in srgb, var(--weight) ${part}%, transparent)`;
      });
    }
    for (const each of [map, ...small]) each.mark(lit);
    const more = lit === resting && rows > 1 ? ` ${hint}` : "";
    said.textContent = all ? hint : query === undefined ? `${sentence("key", key)}.`
      : key === undefined ? `${sentence("query", query)}.${more}`
      : `${queries.said[query]} at ${keys.said[key]}: ${number(at(query, key))}.`;
  }

  // A box of one letter has no room for the leading zero.
  function narrow(weight, side) {
    const words = number(weight);
    return lists[side].kind === "letters" ? words.replace(/^0/, "") : words;
  }

  // The arcs of what is lit, strongest first.
  function wantedArcs() {
    const { query, key } = lit;
    if (query === undefined && key === undefined) return [];
    const found = [];
    for (let i = query ?? 0; i <= (query ?? written - 1); i++) {
      for (let j = key ?? 0; j <= (key ?? columns - 1); j++) {
        if (at(i, j) >= SHOWN_FROM) found.push({ ...ends(i, j), weight: at(i, j) });
      }
    }
    return found.sort((a, b) => b.weight - a.weight);
  }

  // Moves the painted arcs to where they are wanted, the strongest to the strongest.
  function glide(wanted) {
    cancelAnimationFrame(frame);
    const from = moving;
    if (still()) {
      paint((moving = wanted));
      return;
    }
    const begin = performance.now();
    const move = (now) => {
      const part = Math.min(1, Math.max(0, (now - begin) / GLIDE));
      const eased = part * (2 - part);
      moving = part === 1 ? wanted : wanted.map((to, i) => {
        const old = from[i] ?? { ...to, weight: 0 };
        return Object.fromEntries(Object.keys(to).map(
          (name) => [name, old[name] + (to[name] - old[name]) * eased]));
      });
      paint(moving);
      if (part < 1) frame = requestAnimationFrame(move);
    };
    move(begin);
  }

  function paint(wanted) {
    litArcs.replaceChildren(...wanted.map((each) => stroke(arc(each), each.weight)));
  }

  // Where the arc of a pair begins, at its query, and where it ends, at its key.
  function ends(query, key) {
    const [below, above] = [lists.query.options[query], lists.key.options[key]];
    return {
      x: below.offsetLeft + below.offsetWidth / 2, y: below.offsetTop - gap.offsetTop,
      x2: above.offsetLeft + above.offsetWidth / 2,
      y2: above.offsetTop + above.offsetHeight - gap.offsetTop,
    };
  }

  // The lines of boxes, from the lowest up: where each begins and ends, and the gaps between its boxes.
  function linesOf(options) {
    const found = new Map();
    for (const { offsetLeft, offsetTop, offsetWidth, offsetHeight } of options) {
      const top = offsetTop - gap.offsetTop;
      const line = found.get(top) ?? { top, bottom: top + offsetHeight, edges: [] };
      line.edges.push([offsetLeft, offsetLeft + offsetWidth]);
      found.set(top, line);
    }
    return [...found.values()].sort((one, other) => other.top - one.top).map(({ top, bottom, edges }) => ({
      top, bottom, gaps: [edges[0][0] - 3, ...edges.map(([, right], i) => (right + (edges[i + 1]?.[0] ?? right + 6)) / 2)],
    }));
  }

  // From a query to a key. An arc passes lines of other words between two of their boxes.
  function arc({ x, y, x2, y2 }) {
    const between = (line, to) => line.gaps.reduce((one, other) =>
      (Math.abs(other - to) < Math.abs(one - to) ? other : one));
    const passed = lines.filter(({ top, bottom }) => bottom < y && top > y2)
      .map((line) => [between(line, line.top > 0 ? x : x2), line.bottom, line.top]);
    let d = `M${x} ${y}`;
    for (const [to, bottom, top] of [...passed, [x2, y2, y2]]) {
      const bend = (y - bottom) * 0.55;
      d += `C${x} ${y - bend} ${to} ${bottom + bend} ${to} ${bottom}V${top}`;
      [x, y] = [to, top];
    }
    return d;
  }

  function stroke(d, weight) {
    const part = Math.min(1, weight / scale);
    const path = draw("path", { d, opacity: 0.1 + 0.9 * part, "stroke-linecap": "round" });
    path.style.stroke = "var(--weight)";
    path.style.strokeWidth = Math.max(0.6, part * WIDEST_ARC);
    return path;
  }

  // What `shape` draws for each place of a head, joined by level of color, weakest first.
  function byLevel(of, least, shape) {
    const found = [];
    for (let query = 0; query < rows; query++) {
      for (let key = 0; key < columns; key++) {
        const part = Math.min(1, at(query, key, of) / scale);
        if (part < least || !part) continue;
        const level = Math.max(1, Math.round(part * STEPS));
        found[level] = (found[level] ?? "") + shape(query, key);
      }
    }
    return Object.entries(found);
  }

  // A map with a row for each query; with `words` it has names, hatching and numbers.
  function heatMap({ cell, words: named = false }) {
    const letters = (side) => 14 + Math.min(80, 7 * Math.max(...side.shown.map((w) => w.length)));
    const room = named && cell >= 11;
    const [left, top] = room ? [letters(queries), letters(keys)] : named ? [18, 18] : [0, 0];
    const [wide, high] = [columns * cell, rows * cell];
    const size = { width: left + wide + 1, height: top + high + 1 };
    const shown = named ? size : { ...size, height: Math.max(size.height, 32) }; // few rows are stretched
    const inside = draw("g", { transform: `scale(${cell})` });
    const marks = draw("g", { fill: "none", "stroke-width": named ? 2 : 1 });
    const edge = draw("rect", { width: wide, height: high, fill: "transparent",
      stroke: "currentColor", "stroke-opacity": 0.4 });
    const numbersOf = draw("g", { "text-anchor": "middle", "dominant-baseline": "central",
      "font-size": 10, "pointer-events": "none" });
    const place = draw("g", { transform: `translate(${left} ${top})` }, inside, edge, numbersOf,
      marks);
    const svg = draw("svg", { viewBox: `0 0 ${size.width} ${size.height}`, ...shown,
      preserveAspectRatio: named ? "xMidYMid" : "none", "aria-hidden": true, class: named ? "map" : "" }, place);
    if (named) {
      svg.style.minWidth = `${0.9 * size.width}px`; // its words keep 9 pixels
      name();
    }
    return { svg, edge, fill, mark };

    function name() {
      const write = (word, x, y, turn, anchor) => svg.append(draw("text", {
        "font-size": 11, "text-anchor": anchor, "dominant-baseline": "central",
        transform: `translate(${x} ${y}) rotate(${turn ? -90 : 0})`,
      }, word.length > 12 ? `${word.slice(0, 11)}…` : word));
      if (!room) {
        write(sides.key, left + wide / 2, 8, false, "middle");
        write(sides.query, 8, top + high / 2, true, "middle");
        return;
      }
      queries.shown.forEach((w, i) => write(w, left - 5, top + cell * (i + 0.5), false, "end"));
      keys.shown.forEach((w, i) => {
        const x = left + cell * (i + 0.5);
        if (w.length === 1) write(w, x, top - 10, false, "middle");
        else write(w, x, top - 5, true, "start");
      });
    }

    function fill(of) {
      const cells = byLevel(of, 0.5 / STEPS, (i, j) => `M${j} ${i}h1v1h-1z`);
      inside.replaceChildren(...cells.map(([level, d]) => {
        const path = draw("path", { d, opacity: level / STEPS });
        path.style.fill = "var(--weight)";
        return path;
      }));
      let blocked = "";
      for (let i = 0; i < rows; i++) {
        for (let j = 0; j < columns; j++) {
          if (at(i, j, of) !== null) continue;
          blocked += `M${j} ${i + 1}l1-1`;
          if (cell > 12) blocked += `M${j} ${i + 0.5}l.5-.5M${j + 0.5} ${i + 1}l.5-.5`;
        }
      }
      const path = draw("path", { d: blocked, "stroke-width": 1.2 / cell });
      path.style.stroke = "var(--masked)";
      inside.append(path);
      if (named && rows * columns <= 64 && cell >= 22) writeNumbers();
    }

    function writeNumbers() {
      numbersOf.replaceChildren();
      for (let i = 0; i < rows; i++) {
        for (let j = 0; j < columns; j++) {
          if (!(at(i, j) >= SHOWN_FROM)) continue;
          const words = at(i, j).toFixed(2).replace(/^0/, "");
          numbersOf.append(draw("text", { x: (j + 0.5) * cell, y: (i + 0.5) * cell }, words));
        }
      }
    }

    function mark({ query, key }) {
      const bars = [];
      if (query !== undefined) {
        bars.push([{ y: query * cell, width: wide, height: cell }, "var(--query)"]);
      }
      if (key !== undefined) {
        bars.push([{ x: key * cell, width: cell, height: high }, "var(--key)"]);
      }
      marks.replaceChildren(...bars.map(([where, color]) => {
        const bar = draw("rect", { ...where, "pointer-events": "none" });
        bar.style.stroke = color;
        return bar;
      }));
    }
  }

  function listen() {
    for (const side of ["query", "key"]) {
      const { list, options } = lists[side];
      list.addEventListener("keydown", (event) => move(event, side, options));
      options.forEach((option, i) => {
        const only = () => option.classList.contains("blank") || show({ [side]: i });
        let wasLit = false;
        option.addEventListener("pointerdown", () => (wasLit = lit[side] === i));
        option.addEventListener("pointerenter", (event) => isTouch(event) || only());
        option.addEventListener("focus", () => {
          options.forEach((each) => (each.tabIndex = each === option ? 0 : -1));
          if (option.matches(":focus-visible")) only();
        });
        option.addEventListener("click", (event) => {
          if (side === "key" && pick) pick(i);
          else if (isTouch(event) && wasLit) show({});
          else only();
        });
      });
    }
    for (const kind of ["pointermove", "click"]) {
      map.edge.addEventListener(kind, (event) => {
        if (kind === "click" || !isTouch(event)) show(place(event));
      });
    }
    panels.addEventListener("pointerleave", (event) => isTouch(event) || show({}));
    panels.addEventListener("focusout", (event) => {
      if (!panels.contains(event.relatedTarget)) show({});
    });
    panels.addEventListener("click", (event) => {
      if (event.target !== map.edge && !event.target.closest("[role=option]")) show({});
    });
    root.addEventListener("keydown", (event) => {
      if (event.key === "Escape") show({});
    });
  }

  // The query and key of the map's cell beneath the pointer.
  function place({ clientX, clientY }) {
    const box = map.edge.getBoundingClientRect();
    const within = (part, count) => Math.min(count - 1, Math.max(0, Math.floor(part * count)));
    return {
      query: within((clientY - box.top) / box.height, rows),
      key: within((clientX - box.left) / box.width, columns),
    };
  }

  // Left and right go along a list, up to the keys and down to the queries.
  function move(event, side, options) {
    const now = options.indexOf(event.target);
    const across = { ArrowUp: "key", ArrowDown: "query" }[event.key];
    const there = lists[across ?? side].options;
    const count = (across ?? side) === "query" ? written : columns;
    const to = across ? Math.min(now, count - 1) : step(event, now, count, false);
    if (side === "key" && pick && ["Enter", " "].includes(event.key)) {
      event.preventDefault();
      pick(now);
    }
    if (across) event.preventDefault();
    if (to !== undefined) there[to].focus();
  }

  function partners(side, i) {
    const count = side === "query" ? columns : written;
    return Array.from({ length: count }, (_, j) => (side === "query" ? at(i, j) : at(j, i)));
  }

  // `forty looks most at vierzig, 0.93; masked: und`.
  function sentence(side, i) {
    const [name, others, looks] = side === "query" ? [queries.said[i], keys.said, "looks"]
      : [keys.said[i], queries.said, "is looked at"];
    const by = side === "query" ? "at" : "by";
    const weights = partners(side, i);
    const listed = (names) => enumerated(names, sides[side === "query" ? "key" : "query"]);
    const top = Math.max(0, ...weights);
    const best = others.filter((_, j) => weights[j] === top);
    const blocked = others.filter((_, j) => weights[j] === null);
    const what = top === 0 ? `${looks} ${by} nothing`
      : best.length === 1 ? `${looks} most ${by} ${best[0]}, ${number(top)}`
      : `${looks} alike ${by} ${listed(best)}, ${number(top)} each`;
    return `${name} ${what}` + (blocked.length ? `; masked: ${listed(blocked)}` : "");
  }

  // All numbers of this head in the table beneath; they are written when it is opened.
  function fillTable() {
    const details = figure.querySelector("details.data");
    if (!details) return;
    const summary = details.querySelector("summary");
    summary.textContent = heads[1] ? `Data of ${heads[head]}` : "Data";
    summary.onclick = details.ontoggle = write; // a search in the page opens it without a click
    if (details.open) write();

    function write() {
      details.querySelector("thead tr").replaceChildren(
        ...["query", ...keys.said].map((name) => make("th", { scope: "col" }, name)));
      details.querySelector("tbody").replaceChildren(...queries.said.map((name, i) => make("tr", {},
        make("th", { scope: "row" }, name),
        ...partners("query", i).map((weight) => make("td", {}, number(weight))))));
    }
  }
}

// Where lines of boxes begin, about equally long ones, the shorter first: see `_wrapped` in attention.py.
function breaks(widths, room) {
  const sum = (some) => some.reduce((one, other) => one + other, 0);
  for (let count = 1; ; count++) {
    let end = 0;
    const lines = widths.map((width) => Math.floor(((end += width) - width / 2) * count / sum(widths)));
    const begin = lines.flatMap((line, i) => (i && line > lines[i - 1] ? [i] : []));
    const fits = [0, ...begin].every((from, n) => sum(widths.slice(from, begin[n])) <= room);
    if (fits || count === widths.length) return begin;
  }
}

function enumerated(names, kind) {
  if (names.length > 3) return `${names.length} ${kind}`;
  return names.length === 1 ? names[0] : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}

function number(weight) {
  return weight === null ? "masked" : weight.toFixed(2);
}

function isTouch(event) {
  return event.pointerType === "touch";
}

// A group of options of which one is chosen, by pointer or arrow keys: radio buttons or tabs.
// Returns the group and `choose`, which calls `chosen` with a place.
function choices(label, options, chosen, kind = "radio") {
  const isTab = kind === "tab";
  const list = make("div", { role: isTab ? "tablist" : "radiogroup", "aria-label": label },
    ...options);
  let now = 0;
  const choose = (to) => {
    now = to;
    options.forEach((option, i) => {
      option.setAttribute("role", kind);
      option.setAttribute(isTab ? "aria-selected" : "aria-checked", i === to);
      option.tabIndex = i === to ? 0 : -1;
    });
    chosen(to);
  };
  options.forEach((option, i) => option.addEventListener("click", () => choose(i)));
  list.addEventListener("keydown", (event) => {
    const to = step(event, now, options.length, true);
    if (to === undefined) return;
    choose(to);
    options[to].focus();
  });
  return { list, choose };
}

// Where an arrow key leads from place `now` of `count`; undefined for other keys. JupyterLab leaves
// a key alone whose default is prevented.
function step(event, now, count, around) {
  const far = { Home: 0, End: count - 1 }[event.key];
  const by = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
  if (far === undefined && by === undefined) return undefined;
  event.preventDefault();
  if (far !== undefined) return far;
  return around ? (now + by + count) % count : Math.min(count - 1, Math.max(0, now + by));
}
