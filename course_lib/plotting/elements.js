// What the scripts of all live figures share: their data, elements and motion.
const NS = "http://www.w3.org/2000/svg";

// Calls `then` with each figure of a name that no script has taken yet, and with its data.
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

// Whether the reader prefers that nothing moves.
function still() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

// Calls `then` once, when the figure is first to be seen. Returns the observer.
function whenSeen(figure, then) {
  const watch = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    watch.disconnect();
    then();
  }, { threshold: 0.6 });
  watch.observe(figure);
  return watch;
}
