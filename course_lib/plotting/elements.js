// Helpers that all live figures share, for data, elements and motion.
const NS = "http://www.w3.org/2000/svg";

// Calls `then(figure, data)` for each figure with this name that no script has handled yet, after
// setting its colors.
function eachLive(name, then) {
  for (const figure of document.querySelectorAll(`figure.course-figure[data-live=${name}]`)) {
    figure.removeAttribute("data-live");
    const { colors = {}, ...data } = JSON.parse(figure.querySelector("script.live").textContent);
    for (const role of Object.keys(colors)) figure.style.setProperty(`--${role}`, colors[role]);
    then(figure, data);
  }
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

// Whether the reader prefers reduced motion.
function still() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

// Calls `then` once, when the figure first comes into view. Returns the observer.
function whenSeen(figure, then) {
  const watch = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    watch.disconnect();
    then();
  }, { threshold: 0.6 });
  watch.observe(figure);
  return watch;
}
