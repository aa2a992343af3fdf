// The attention viewer: see attention.py. A word that is pointed at, touched or reached with the
// arrow keys leaves its own weights; heads are chosen by their small maps. What shows weights of
// its own making calls `viewer` anew for them.
const NS = "http://www.w3.org/2000/svg";
const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const MASKED = 4095;
const STEPS = 16;
const FAINTEST = 0.02;
const HELP = "Point at a word, touch it or go to it with Tab and arrow keys: its weights alone.";
const STYLE = `
.course-attention { font-size: 14px; line-height: 1.3; }
.course-attention svg { display: block; overflow: visible; font-family: inherit; }
.course-attention .heads { display: flex; flex-wrap: wrap; gap: 6px; margin-bottom: 8px; }
.course-attention .head { padding: 4px; border: 2px solid transparent; border-radius: 4px;
  cursor: pointer; font-size: 12px; max-width: 84px; }
.course-attention .head span { display: block; overflow: hidden; text-overflow: ellipsis; }
.course-attention .head[aria-checked=true] { border-color: currentColor; font-weight: bold; }
.course-attention .panels { display: flex; flex-wrap: wrap; gap: 16px 32px;
  align-items: flex-start; }
.course-attention .left { flex: 1 1 300px; max-width: 460px; min-width: 0; }
.course-attention .arcs { display: grid;
  grid-template-columns: minmax(0, max-content) minmax(60px, 1fr) minmax(0, max-content); }
.course-attention .side { height: 24px; font-style: italic; white-space: nowrap; }
.course-attention .side.query, .course-attention .query [role=option] { text-align: right; }
.course-attention [role=option] { display: flex; align-items: center; gap: 4px;
  box-sizing: border-box; height: var(--row); font-size: min(14px, var(--row));
  line-height: 1; cursor: default; }
.course-attention .query [role=option] { flex-direction: row-reverse; padding-right: 6px; }
.course-attention .query .number { text-align: left; }
.course-attention .key [role=option] { padding-left: 6px; }
.course-attention .query[role=listbox] { border-right: 2px solid var(--query); }
.course-attention .key[role=listbox] { border-left: 2px solid var(--key); }
.course-attention .word { overflow: hidden; text-overflow: ellipsis; white-space: nowrap;
  line-height: 1.3; max-width: 8em; flex: 1; }
.course-attention .number { flex: none; width: 4.2em; font-size: 0.86em; text-align: right;
  font-variant-numeric: tabular-nums; }
.course-attention .lit .word { font-weight: bold; text-decoration: underline; }
.course-attention .struck .word { text-decoration: line-through; }
.course-attention .map { flex: 0 1 auto; max-width: 100%; height: auto; }
.course-attention .map text, .course-attention .head text { fill: currentColor; }
.course-attention p { margin: 4px 0; }
.course-attention .said { min-height: 2.6em; }
.course-attention .title { font-weight: bold; }
.course-attention .note { font-size: 12px; max-width: 360px; }
.course-attention :focus { outline: none; }
.course-attention :focus-visible { outline: 2px solid currentColor; outline-offset: 1px; }
@media (forced-colors: active) {
  .course-attention .head { border-color: Canvas; }
  .course-attention .head[aria-checked=true] { border-color: Highlight; }
}
@media print { .course-attention .said { display: none; } }
`;

for (const figure of document.querySelectorAll("figure.course-figure[data-live=attention]")) {
  const data = JSON.parse(figure.querySelector("script.live").textContent);
  figure.removeAttribute("data-live");
  const still = stillOf(figure);
  const alt = still.alt ?? still.getAttribute("aria-label");
  still.replaceWith(viewer(figure, { ...data, alt, numbers: decoded(data) }).root);
}

function stillOf(figure) {
  return figure.querySelector(":scope > svg, :scope > img");
}

function decoded({ weights, levels }) {
  return Array.from({ length: weights.length / 2 }, (_, n) => {
    const level = 64 * DIGITS.indexOf(weights[2 * n]) + DIGITS.indexOf(weights[2 * n + 1]);
    return level === MASKED ? null : level / levels;
  });
}

// The viewer's element, and `rest`, which says what is lit while nothing is pointed at. `numbers`
// are the weights by head, query and key, null where masked; `sides` is what the two are called,
// `head` is the first to be shown, and `chosen` is told of every other.
function viewer(figure, {
  title, queries, keys, heads, note, scale, numbers, colours, alt, head = 0, chosen = () => {},
  sides = { query: "queries", key: "keys" },
}) {
  const [rows, columns] = [queries.shown.length, keys.shown.length];
  let lit = {};
  let resting = {};
  // The weight of a query at a key, null where it is masked.
  const at = (query, key, of = head) => numbers[(of * rows + query) * columns + key];
  const row = Math.min(24, Math.max(14, 600 / Math.max(rows, columns)));

  const lists = { query: words("query", queries), key: words("key", keys) };
  const height = row * Math.max(rows, columns);
  const curves = draw("svg", {
    viewBox: `0 0 100 ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": alt,
    style: `width: 100%; height: ${height}px`, // JupyterLab gives others height: auto
  });
  const map = heatMap({ cell: Math.min(30, 330 / columns, 600 / rows), words: true });
  const small = heads.map(() => heatMap({ cell: 64 / Math.max(rows, columns) }));
  const said = make("p", { class: "said" });
  const arcs = make("div", { class: "arcs" },
    make("div", { class: "side query", "aria-hidden": true }, sides.query), make("div"),
    make("div", { class: "side key", "aria-hidden": true }, sides.key),
    lists.query.list, curves, lists.key.list);
  const panels = make("div", { class: "panels" }, make("div", { class: "left" }, arcs, said),
    make("div", {}, map.svg, make("p", { class: "note" }, note)));
  const root = make("div", { class: "course-attention", role: "group" },
    make("style", {}, STYLE), ...picker(), panels);
  root.setAttribute("aria-label", title ?? "Attention");
  if (title) root.prepend(make("p", { class: "title" }, title));
  root.style.setProperty("--row", `${row}px`);
  for (const [name, colour] of Object.entries(colours)) root.style.setProperty(`--${name}`, colour);
  listen();
  small.forEach((each, of) => each.fill(of));
  choose(head);
  return { root, rest };

  function rest(wanted) {
    resting = wanted;
    show({});
  }

  // A list of words: an option each, of which one can be reached with Tab.
  function words(side, { shown }) {
    const options = shown.map((word, i) => make("div", {
      role: "option", tabindex: i ? -1 : 0, ...(word.length > 10 && { title: word }),
    }, make("span", { class: "word", dir: "auto" }, word), make("span", { class: "number" })));
    const name = sides[side][0].toUpperCase() + sides[side].slice(1);
    const list = make("div", { role: "listbox", "aria-label": name, class: side }, ...options);
    return { list, options };
  }

  // The heads to choose from, as radio buttons with their maps.
  function picker() {
    if (heads.length === 1) return [];
    const options = heads.map((name, of) => make("div",
      { class: "head", role: "radio", "aria-checked": false, tabindex: -1, "aria-label": name },
      small[of].svg, make("span", {}, name)));
    const group = make("div", { class: "heads", role: "radiogroup", "aria-label": "Head" },
      ...options);
    options.forEach((option, of) => option.addEventListener("click", () => choose(of)));
    group.addEventListener("keydown", (event) => {
      const to = step(event, head, heads.length, true);
      if (to === undefined) return;
      choose(to);
      options[to].focus();
    });
    picker.options = options;
    return [group];
  }

  function choose(of) {
    head = of;
    chosen(of);
    for (const [i, option] of (picker.options ?? []).entries()) {
      option.setAttribute("aria-checked", i === of);
      option.tabIndex = i === of ? 0 : -1;
    }
    map.fill(of);
    for (const side of ["query", "key"]) {
      lists[side].options.forEach((option, i) => {
        option.setAttribute("aria-label", sentence(side, i));
        option.classList.toggle("struck", partners(side, i).every((weight) => weight === null));
      });
    }
    fillTable();
    show(lit);
  }

  // Leaves the weights of one query, one key or one place; {} brings back those at rest.
  function show(wanted) {
    lit = "query" in wanted || "key" in wanted ? wanted : resting;
    const { query, key } = lit;
    const all = query === undefined && key === undefined;
    curves.replaceChildren(...(all ? manyArcs() : fewArcs()));
    for (const side of ["query", "key"]) {
      const other = side === "query" ? key : query;
      lists[side].options.forEach((option, i) => {
        const weight = other === undefined ? undefined
          : side === "query" ? at(i, key) : at(query, i);
        const told = weight !== undefined && (lit[side] ?? i) === i;
        option.lastChild.textContent = told ? number(weight) : "";
        option.classList.toggle("struck", told ? weight === null
          : partners(side, i).every((each) => each === null));
        option.classList.toggle("lit", lit[side] === i);
        option.setAttribute("aria-selected", lit[side] === i);
      });
    }
    for (const each of [map, ...small]) each.mark(lit);
    said.textContent = all ? HELP : query === undefined ? `${sentence("key", key)}.`
      : key === undefined ? `${sentence("query", query)}.`
      : `${queries.said[query]} at ${keys.said[key]}: ${number(at(query, key))}.`;
  }

  function manyArcs() {
    const drawn = byLevel(head, FAINTEST, arc);
    return drawn.map(([level, d]) => stroke(d, (level / STEPS) * scale));
  }

  function fewArcs() {
    const found = [];
    for (let query = 0; query < rows; query++) {
      for (let key = 0; key < columns; key++) {
        const isLit = (lit.query ?? query) === query && (lit.key ?? key) === key;
        if (isLit && at(query, key)) found.push(stroke(arc(query, key), at(query, key)));
      }
    }
    return found;
  }

  function arc(query, key) {
    const [start, end] = [row * (query + 0.5), row * (key + 0.5)];
    return `M0 ${start}C50 ${start} 50 ${end} 100 ${end}`;
  }

  function stroke(d, weight) {
    const part = Math.min(1, weight / scale);
    const path = draw("path", { d, fill: "none", opacity: Math.max(0.06, part) });
    path.style.stroke = "var(--weight)";
    path.style.strokeWidth = Math.max(0.6, part * Math.min(8, row / 2));
    path.setAttribute("vector-effect", "non-scaling-stroke");
    return path;
  }

  // What `shape` draws for each place of a head, joined by level of colour, weakest first.
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
    const inside = draw("g", { transform: `scale(${cell})` });
    const marks = draw("g", { fill: "none", "stroke-width": named ? 2 : 1 });
    const edge = draw("rect", { width: wide, height: high, fill: "transparent",
      stroke: "currentColor", "stroke-opacity": 0.4 });
    const numbersOf = draw("g", { "text-anchor": "middle", "dominant-baseline": "central",
      "font-size": 10, "pointer-events": "none" });
    const place = draw("g", { transform: `translate(${left} ${top})` }, inside, edge, numbersOf,
      marks);
    const svg = draw("svg", { viewBox: `0 0 ${size.width} ${size.height}`, ...size,
      "aria-hidden": true, class: named ? "map" : "" }, place);
    if (named) name();
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
          blocked += named ? `M${j} ${i + 1}l1-1` : `M${j} ${i}h1v1h-1z`;
          if (named && cell > 12) blocked += `M${j} ${i + 0.5}l.5-.5M${j + 0.5} ${i + 1}l.5-.5`;
        }
      }
      const path = draw("path", { d: blocked, "stroke-width": 1.2 / cell });
      path.style.stroke = named ? "var(--masked)" : "none";
      path.style.fill = named ? "none" : "var(--masked)";
      if (!named) path.setAttribute("opacity", 0.3);
      inside.append(path);
      if (named && Math.max(rows, columns) <= 8 && cell >= 22) writeNumbers();
    }

    function writeNumbers() {
      numbersOf.replaceChildren();
      for (let i = 0; i < rows; i++) {
        for (let j = 0; j < columns; j++) {
          if (at(i, j) === null) continue;
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
      marks.replaceChildren(...bars.map(([where, colour]) => {
        const bar = draw("rect", { ...where, "pointer-events": "none" });
        bar.style.stroke = colour;
        return bar;
      }));
    }
  }

  function listen() {
    for (const side of ["query", "key"]) {
      const { list, options } = lists[side];
      list.addEventListener("keydown", (event) => move(event, side, options));
      options.forEach((option, i) => {
        const only = () => show({ [side]: i });
        let wasLit = false;
        option.addEventListener("pointerdown", () => (wasLit = lit[side] === i));
        option.addEventListener("pointerenter", (event) => isTouch(event) || only());
        option.addEventListener("focus", () => {
          options.forEach((each) => (each.tabIndex = each === option ? 0 : -1));
          if (option.matches(":focus-visible")) only();
        });
        option.addEventListener("click", (event) => {
          if (isTouch(event) && wasLit) show({});
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

  // Up and down go along a list, left and right to the other one.
  function move(event, side, options) {
    const now = options.indexOf(event.target);
    const across = { ArrowLeft: "query", ArrowRight: "key" }[event.key];
    if (across) {
      event.preventDefault();
      const there = lists[across].options;
      there[Math.min(now, there.length - 1)].focus();
      return;
    }
    const to = step(event, now, options.length, false);
    if (to !== undefined) options[to].focus();
  }

  function partners(side, i) {
    const count = side === "query" ? columns : rows;
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

function make(tag, attributes = {}, ...inside) {
  return filled(document.createElement(tag), attributes, inside);
}

function draw(tag, attributes = {}, ...inside) {
  return filled(document.createElementNS(NS, tag), attributes, inside);
}

function filled(element, attributes, inside) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...inside);
  return element;
}
