// A table of buttons, one for each query and key. Pressed means: the query may attend the key.
for (const figure of document.querySelectorAll('figure.course-figure[data-live="clickable_mask"]')) {
  const { weights, masks, num_keys } = JSON.parse(figure.querySelector("script.live").textContent);
  figure.dataset.live = "";
  const keys = [...Array(num_keys).keys()];
  const table = document.createElement("table");
  table.style.cssText = "border-collapse:separate;border-spacing:2px;margin:0;font-size:0.85em;background:none";
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
      const words = now[key] < 0 ? "nan" : (now[key] / 1000).toFixed(2);
      button.textContent = words;
      button.setAttribute("aria-pressed", Boolean(allowed));
      button.setAttribute("aria-label", `query ${query} may attend key ${key}: weight ${words}`);
      const hatch = "repeating-linear-gradient(45deg,#777 0 1px,transparent 1px 7px)";
      button.style.cssText =
        "min-width:3.2em;min-height:2.4em;padding:0;border:1px solid #777;color:inherit;" +
        "font:inherit;cursor:pointer;" +
        `background:${allowed ? `rgb(135 87 201/${Math.max(0, 0.6 * now[key]) / 1000})` : hatch};`;
    });
    sum.textContent = (now.reduce((total, weight) => total + weight, 0) / 1000).toFixed(2);
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
    button.onclick = () => masks.forEach((_, query) => fill(query, (masks[query] = choose(query))));
    presets.append(button, " ");
  }
  masks.forEach((_, query) => fill(query));
  figure.querySelector(":scope > svg").replaceWith(table, presets);
}
