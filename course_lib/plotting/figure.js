const NARROW = 520;

// Where scripts run, the still picture of a figure becomes part of the page: it takes the page's
// colors, and its words can be selected. Where they do not, the picture stays as it is.
function picture(source, alt) {
  const parsed = new DOMParser().parseFromString(source, "image/svg+xml").documentElement;
  const svg = document.importNode(parsed, true);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", alt);
  if (svg.dataset.panels) new ResizeObserver(() => stack(svg)).observe(svg.ownerDocument.body);
  return svg;
}

// Where panels side by side have no room, they are stacked, each a window on the picture.
function stack(svg) {
  const room = svg.parentElement?.clientWidth;
  svg.least ??= parseFloat(svg.style.minWidth) || 0;
  const narrow = room < Math.max(NARROW, svg.least);
  if (!room || narrow === Boolean(svg.whole)) return;
  const names = ["viewBox", "width", "height", "style"];
  if (!narrow) {
    svg.replaceChildren(...svg.whole);
    names.forEach((name, i) => svg.setAttribute(name, svg.before[i]));
    svg.whole = undefined;
    return;
  }
  svg.before = names.map((name) => svg.getAttribute(name));
  svg.whole = [...svg.childNodes];
  const numbers = svg.dataset.panels.split(" ").map(Number);
  let bottom = 0;
  const panels = [];
  for (let i = 0; i < numbers.length; i += 4) {
    const [, , width, height] = numbers.slice(i, i + 4);
    const panel = document.createElementNS(svg.namespaceURI, "svg");
    const size = { y: bottom, width, height, viewBox: numbers.slice(i, i + 4).join(" ") };
    for (const [name, value] of Object.entries(size)) panel.setAttribute(name, value);
    panel.append(...svg.whole.map((node) => node.cloneNode(true)));
    panels.push(panel);
    bottom += height;
  }
  svg.replaceChildren(...panels);
  const size = [Math.max(...panels.map((each) => each.getAttribute("width"))), bottom];
  svg.setAttribute("viewBox", `0 0 ${size.join(" ")}`);
  const across = svg.before[0].split(" ")[2];
  const scale = svg.before[1] / across;
  const least = parseFloat(svg.style.minWidth) / across; // pixels in a unit, for words to be read
  size.forEach((each, i) => svg.setAttribute(names[i + 1], each * scale));
  svg.style.minWidth = `${least * size[0]}px`;
  if (!(least * size[0] > room)) svg.parentElement.removeAttribute("tabindex");
}

for (const still of document.querySelectorAll("figure.course-figure > img.still")) {
  const source = decodeURIComponent(still.src.slice(still.src.indexOf(",") + 1));
  still.replaceWith(picture(source, still.alt));
}
