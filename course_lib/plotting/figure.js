// Where scripts run, the still picture of a figure becomes part of the page: it takes the page's
// colours, and its words can be selected. Where they do not, the picture stays as it is.
for (const still of document.querySelectorAll("figure.course-figure:not([data-live]) > img.still")) {
  const source = decodeURIComponent(still.src.slice(still.src.indexOf(",") + 1));
  const parsed = new DOMParser().parseFromString(source, "image/svg+xml").documentElement;
  const svg = document.importNode(parsed, true);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", still.alt);
  still.replaceWith(svg);
}
