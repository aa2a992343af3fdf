// A table of buttons, one for each query and key. Pressed means: the query may attend to the key.
const MOST_HIGH = 52;
const LOOK = "width:clamp(36px,11vw,56px);height:54px;padding:0;border:1px solid #777;color:inherit;" +
  "border-radius:6px;font:inherit;cursor:pointer;font-variant-numeric:tabular-nums;" +
  (matchMedia("(prefers-reduced-motion: reduce)").matches ? "" : "transition:box-shadow .3s;");
const PRESET = "font:inherit;color:inherit;background:none;border:1px solid #777;border-radius:4px;" +
  "padding:5px 10px;margin:4px 2px 0 0;cursor:pointer";
for (const figure of document.querySelectorAll('figure.course-figure[data-live="clickable_mask"]')) {
  const { weights, masks, num_keys } = JSON.parse(figure.querySelector("script.live").textContent);
  figure.dataset.live = "";
  const keys = [...Array(num_keys).keys()];
  const table = document.createElement("table");
  table.style.cssText =
    "border-collapse:separate;border-spacing:3px;margin:0;background:none;max-width:100%";
  const head = table.createTHead().insertRow();
  for (const words of ["", ...keys.map((key) => `key ${key}`), "sum"]) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = words;
    head.append(cell);
  }
  const rows = masks.map((_, query) => row(query));

  function row(query) {
    const line = (table.tBodies[0] ?? table.createTBody()).insertRow();
    const name = document.createElement("th");
    name.scope = "row";
    name.textContent = `query ${query}`;
    line.append(name);
    const buttons = keys.map((key) => {
      const button = document.createElement("button");
      button.type = "button";
      button.onclick = () => {
        masks[query] ^= 1 << key;
        fill(query);
      };
      line.insertCell().append(button);
      return button;
    });
    return { buttons, sum: line.insertCell() };
  }

  function fill(query) {
    const { buttons, sum } = rows[query];
    const now = weights[query][masks[query]];
    buttons.forEach((button, key) => {
      const allowed = (masks[query] >> key) & 1;
      const weight = now[key] < 0 ? NaN : now[key] / 1000;
      const words = Number.isNaN(weight) ? "nan" : weight.toFixed(2);
      button.textContent = allowed || weight !== 0 ? words : "";
      button.setAttribute("aria-pressed", Boolean(allowed));
      button.setAttribute("aria-label", `query ${query} may attend to key ${key}: weight ${words}`);
      const hatch = "repeating-linear-gradient(45deg,transparent 0 6px,#777 6px 7px)";
      const fill = `rgb(135 87 201 / ${0.7 * (weight || 0)})`;
      button.style.cssText = LOOK + (allowed
        ? `box-shadow:inset 0 -${MOST_HIGH * (weight || 0)}px 0 ${fill};background:none`
        : `background:${hatch}`);
    });
    const total = now.reduce((sum, weight) => sum + weight, 0) / 1000;
    sum.textContent = total.toFixed(2);
    sum.style.cssText = "padding:0 0 0 6px;min-width:52px;background-repeat:no-repeat;" +
      "background-position:left bottom 8px;background-image:linear-gradient(#8757c9,#8757c9);" +
      `background-size:${46 * Math.max(0, total)}px 4px`;
  }

  const presets = document.createElement("p");
  const every = (1 << num_keys) - 1;
  const offset = num_keys - masks.length;
  const causal = (query) => (query + offset < 0 ? 0 : every & ((2 << (query + offset)) - 1));
  const choices = { "allow every key": () => every, "causal": causal, "mask every key": () => 0 };
  for (const [words, choose] of Object.entries(choices)) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = words;
    button.style.cssText = PRESET;
    button.onclick = () => masks.forEach((_, query) => fill(query, (masks[query] = choose(query))));
    presets.append(button, " ");
  }
  masks.forEach((_, query) => fill(query));
  figure.querySelector(":scope > svg").replaceWith(table, presets);
}
