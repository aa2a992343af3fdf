// A query to drag: see query_plane.py, which computed the weights of every place it can go to.
const BEYOND = 0.45; // from the tip of a key to its name, clear of a value at the tip
const PLANE_STYLE = `
.course-live .plane { display: flex; flex-wrap: wrap; gap: 8px 28px; align-items: center; }
.course-live .plane > div { flex: 1 1 280px; max-width: 420px; min-width: 0; }
.course-live .scales { display: flex; gap: 2px; max-width: 640px; }
.course-live .scales div { flex: 1 1 0; min-width: 0; padding: 2px; border: 2px solid transparent;
  border-radius: 4px; text-align: center; font-size: 12px; cursor: pointer; }
.course-live .scales [aria-checked=true] { border-color: currentColor; font-weight: bold; }
.course-live .scales svg { display: block; outline: 1px solid var(--masked); }
.course-live .plane .region { opacity: 0; }
.course-live .plane .region.now { opacity: 1; }
@media (prefers-reduced-motion: no-preference) {
  .course-live .plane .region { transition: opacity 0.4s; }
}
.course-live .plane svg { display: block; width: 400px; max-width: 100%; height: auto;
  touch-action: pan-y; cursor: grab; overflow: visible; }
.course-live .query-tip { touch-action: none; }
.course-live .plane text { fill: currentColor; font: 600 13px system-ui, sans-serif;
  text-anchor: middle; dominant-baseline: central; }
.course-live .scores { display: grid; gap: 8px;
  grid-template-columns: auto minmax(30px, 90px) 3em minmax(30px, 90px) 3em; align-items: center; font-variant-numeric: tabular-nums; margin: 0; }
.course-live .scores .half { position: relative; height: 14px; }
.course-live .scores .half i, .course-live .scores .from0 i { display: block; height: 14px;
  min-width: 1px; forced-color-adjust: none; }
.course-live .scores .half i { position: absolute; background: var(--key); }
.course-live .scores .from0 i { background: var(--weight); }
.course-live .signs span { display: inline-block; }
.course-live .signs span::before { content: ""; display: inline-block; width: 10px; height: 10px;
  border-radius: 5px; margin: 0 5px 0 10px; background: var(--sign); forced-color-adjust: none; }
.course-live .signs span:last-child::before { border-radius: 0; rotate: 45deg; } /* as drawn */
.course-live .query-tip:focus { outline: none; }
.course-live .query-tip:focus-visible circle { stroke: currentColor; stroke-width: 2; }
`;

eachLive("query_plane", planePage);

function planePage(figure, { keys, values, names, value_names: valueNames, reach, steps, start, scales, scale, regions,
  levels, weights }) {
  const all = decoded({ weights, levels });
  const middle = 150;
  const unit = (middle - 16) / reach;
  // The largest dot product that can be reached: the bars keep their scale during a drag.
  const widest = reach * Math.max(...keys.map(([x, y]) => Math.abs(x) + Math.abs(y)));
  const place = ([x, y]) => [middle + x * unit, middle - y * unit];
  let at = start; // the column and the row of the query in the grid
  let size = scale;

  const drawn = draw("g", {});
  const tip = draw("g", { class: "query-tip", tabindex: 0, role: "slider", "aria-valuemin": -180,
    "aria-valuemax": 180, "aria-label": "Query: its direction; the arrow keys move it" },
    draw("circle", { r: 14, "fill-opacity": 0.35 }), draw("text", {}, "query"));
  tip.firstChild.style.fill = "var(--query)";
  const won = regions.map((href) => draw("image", { class: "region", href, x: 16, y: 16, width: 268, height: 268 }));
  const svg = draw("svg", { viewBox: "0 0 300 300" }, ...won, draw("path", {
    d: "M0 150H300M150 0V300", stroke: "currentColor", "stroke-opacity": 0.25 }), drawn, tip);
  const rows = names.map((name) => row(name));
  const bars = make("div", { class: "scores", "aria-hidden": true },
    ...["", "query · key", "", "weight", ""].map((word) => make("i", {}, word)),
    ...rows.flatMap((each) => each.cells));
  const said = make("p", { class: "said" });
  const signs = make("p", { class: "signs", "aria-hidden": true }, ...Object.entries(
    { query: "query", key: "keys", value: "values", output: "weighted average" }).map(([role, word]) => {
    const sign = make("span", {}, word);
    sign.style.setProperty("--sign", `var(--${role})`);
    return sign;
  }));
  livePage(figure, "A query to drag among keys", make("style", {}, PLANE_STYLE),
    make("p", {}, `Drag the tip of the query${TOUCHED ? "" : ", or move it with the arrow keys"}. A region belongs to the ` +
      "key with the largest weight there, and its color is fuller where that weight is larger. The step marks a weight of 0.9."),
    ...smallPlanes(), make("div", { class: "plane" }, svg, make("div", {}, bars, signs)), said);
  svg.addEventListener("pointerdown", (event) => {
    svg.setPointerCapture(event.pointerId);
    tip.focus({ preventScroll: true });
    drag(event);
  });
  svg.addEventListener("pointermove", (event) => event.buttons && drag(event));
  tip.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    if (!by[event.key]) return;
    event.preventDefault();
    go(at.map((each, i) => each + by[event.key][i]));
  });
  go(start);

  function row(name) {
    const half = make("div", { class: "half" }, make("i"));
    const full = make("div", { class: "from0" }, make("i"));
    const [product, weight] = [make("span"), make("span")];
    return { half, full, product, weight,
      cells: [make("b", {}, name), half, product, full, weight] };
  }

  // A small plane for each scale, of which the chosen one is drawn large.
  function smallPlanes() {
    if (scales.length === 1) return [];
    const options = regions.map((href, i) => make("div", {}, draw("svg", { viewBox: "0 0 9 9" },
      draw("image", { href, width: 9, height: 9 })), `×${scales[i]}`));
    const { list, choose } = choices("Scores: the dot products times", options, (to) => {
      size = to;
      go(at);
    });
    list.classList.add("scales");
    choose(scale);
    return [make("p", {}, "Choose a small plane to multiply the scores by its number."), list];
  }

  function drag({ clientX, clientY }) {
    const box = svg.getBoundingClientRect();
    const [x, y] = [(clientX - box.left) / box.width, (clientY - box.top) / box.height];
    const [across, up] = [300 * x - middle, middle - 300 * y];
    go([across, up].map((each) => Math.round(((each / unit + reach) / (2 * reach)) * steps)));
  }

  function go(wanted) {
    won.forEach((region, i) => region.classList.toggle("now", i === size));
    at = wanted.map((each) => Math.min(steps, Math.max(0, each)));
    const query = at.map((each) => (each / steps) * 2 * reach - reach);
    const from = ((size * (steps + 1) + at[1]) * (steps + 1) + at[0]) * keys.length;
    const now = all.slice(from, from + keys.length);
    const products = keys.map((key) => key[0] * query[0] + key[1] * query[1]);
    const output = [0, 1].map((axis) => total(now.map((weight, i) => weight * values[i][axis])));
    rows.forEach(({ half, full, product, weight }, i) => {
      const part = (50 * products[i]) / widest;
      half.firstChild.style.cssText = `left:${50 + Math.min(0, part)}%;width:${Math.abs(part)}%`;
      full.firstChild.style.width = `${100 * now[i]}%`;
      product.textContent = products[i].toFixed(1);
      weight.textContent = now[i].toFixed(2);
    });
    paint(query, now, output);
    const best = largest(now);
    said.textContent = `Query (${query.map((each) => each.toFixed(2)).join(", ")}): ` +
      `${names[best]} gets the most weight, ${now[best].toFixed(2)}. The average is ` +
      `(${output.map((each) => each.toFixed(2)).join(", ")}).`;
    const angle = Math.round((Math.atan2(query[1], query[0]) * 180) / Math.PI);
    tip.setAttribute("aria-valuenow", angle);
    tip.setAttribute("aria-valuetext", said.textContent);
    const [x, y] = place(query);
    tip.setAttribute("transform", `translate(${x} ${y})`);
    // Its word stands outward of the tip, on the page.
    const long = Math.max(Math.hypot(...query), 0.01);
    const [beside, below] = [(34 * query[0]) / long, (-24 * query[1]) / long];
    tip.lastChild.setAttribute("x", Math.min(280, Math.max(20, x + beside)) - x);
    tip.lastChild.setAttribute("y", Math.min(292, Math.max(8, y + below)) - y);
  }

  function paint(query, now, output) {
    const [x, y] = place(output);
    drawn.replaceChildren(
      ...keys.flatMap((key, i) => {
        const far = 1 + BEYOND / Math.max(Math.hypot(...key), 0.3);
        const [left, top] = place(key.map((each) => each * far));
        return [...arrow(key, "key", 2), draw("text", { x: left, y: top }, names[i])];
      }),
      ...values.flatMap((value, i) => {
        const [cx, cy] = place(value);
        return [painted("value", "circle", { cx, cy, r: 4 + 9 * now[i], opacity: 0.7 }),
          draw("text", { x: cx + (cx > 250 ? -22 : 22), y: cy }, valueNames[i])];
      }),
      ...arrow(query, "query", 3.5),
      painted("output", "path", { d: `M${x} ${y - 8}l8 8-8 8-8-8z` }));
  }

  function arrow(to, role, width) {
    const [x, y] = place(to);
    const long = Math.max(Math.hypot(x - middle, y - middle), 1e-6);
    const [dx, dy] = [(x - middle) / long, (y - middle) / long];
    const [a, b] = [x - 9 * dx, y - 9 * dy];
    const line = painted(role, "path", { d: `M${middle} ${middle}L${a} ${b}`, fill: "none",
      "stroke-width": width });
    line.style.stroke = `var(--${role})`;
    return [line, painted(role, "path", {
      d: `M${x} ${y}L${a - 5 * dy} ${b + 5 * dx} ${a + 5 * dy} ${b - 5 * dx}z` })];
  }

  function painted(role, tag, attributes) {
    const made = draw(tag, attributes);
    made.style.fill = `var(--${role})`;
    return made;
  }
}
