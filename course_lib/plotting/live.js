// What figures share that run a model on what one types: a text box, bars, the viewer anew.
const LIVE_STYLE = `
~ { font-size: 14px; line-height: 1.4; }
~ p { margin: 4px 0; overflow-wrap: anywhere; }
~ label { max-width: 100%; }
~ input { font: inherit; font-size: 16px; color: inherit; background: transparent;
  border: 1px solid var(--masked); border-radius: 6px; padding: 4px 8px; width: 20em;
  max-width: calc(100% - 8px); box-sizing: border-box; margin-left: 8px; }
~ button { font: inherit; color: inherit; background: transparent;
  border: 1px solid var(--masked); border-radius: 4px; padding: 5px 10px; min-height: 30px;
  min-width: 30px; cursor: pointer; }
~ button[aria-disabled=true] { opacity: 0.45; cursor: default; }
~ button[aria-checked=true] { font-weight: bold;
  box-shadow: inset 0 0 0 2px var(--query); }
~ [hidden] { display: none; }
~ .row { display: flex; flex-wrap: wrap; gap: 6px; align-items: center; margin: 8px 0; }
~ .row > * { width: auto; } /* the site's grid makes them as wide as the page */
~ .row > :is(label, p) { padding: 0; } /* and indents them */
~ .hint { min-height: 1.4em; }
~ .bars { list-style: none; margin: 4px 0 12px; padding: 0; max-width: 460px; }
~ .bars li { display: grid; grid-template-columns: 6em 1fr 3em; gap: 8px; margin: 0;
  align-items: center; }
~ .bars li:first-child { font-weight: bold; }
~ .bars .number { text-align: right; font-variant-numeric: tabular-nums; }
~ .bar { height: 10px; min-width: 1px; background: var(--output);
  forced-color-adjust: none; }
~ .heard { position: absolute; width: 1px; height: 1px; overflow: hidden;
  clip-path: inset(50%); }
~ :focus-visible { outline: 2px solid currentColor; outline-offset: 1px; }
`.replaceAll("~", ".course-live"); // short, since each figure carries its script
const QUIET = 600; // milliseconds without a key before a screen reader is told what came out

// The figure's still picture makes room for `parts` and a viewer. Gives `say`, which tells a screen
// reader something, and `view`, which shows weights and gives the viewer's `rest`.
function livePage(figure, label, ...parts) {
  const still = stillOf(figure);
  const heard = make("p", { class: "heard", "aria-live": "polite" });
  const place = make("div");
  const page = make("div", { class: "course-live", role: "group", "aria-label": label },
    make("style", {}, LIVE_STYLE), ...parts, place, heard);
  let waiting;
  still.replaceWith(page);
  return { say, view, place };

  // To a screen reader, where someone is at work in the figure.
  function say(words) {
    if (!page.contains(document.activeElement)) return;
    clearTimeout(waiting);
    waiting = setTimeout(() => (heard.textContent = words), QUIET);
  }

  // Shows weights in a viewer of their own; nothing without any.
  function view(shown) {
    if (!shown) {
      place.replaceChildren();
      return undefined;
    }
    const top = Math.max(...shown.numbers);
    const scale = [0.1, 0.2, 0.5, 1].find((each) => top <= each + 1e-3);
    const note = `Thicker arcs and fuller color show larger weights, up to ${scale}.`;
    return viewer(figure, { ...shown, scale, note, put: (root) => place.replaceChildren(root) });
  }
}

// A text box with its name; `changed` is called with its text, once for each frame of the screen.
function textBox(label, start, changed) {
  const input = make("input", { type: "text", value: start, autocomplete: "off",
    autocapitalize: "none", spellcheck: false });
  let waits = false;
  input.addEventListener("input", () => {
    if (waits) return;
    waits = true;
    requestAnimationFrame(() => {
      waits = false;
      changed(input.value);
    });
  });
  return { input, box: make("label", {}, label, input) };
}

// A button that keeps the keyboard's focus where it can do nothing.
function button(words, pressed) {
  const made = make("button", { type: "button" }, words);
  made.addEventListener("click", () => {
    if (made.getAttribute("aria-disabled") !== "true") pressed();
  });
  return made;
}

// The largest probabilities from 0.01 up as bars, five at most, with their names.
function fillBars(list, probabilities, names) {
  const order = [...probabilities.keys()].sort((a, b) => probabilities[b] - probabilities[a]);
  const shown = order.slice(0, 5).filter((token) => probabilities[token] >= SHOWN_FROM);
  list.replaceChildren(...shown.map((token) => {
    const bar = make("div", { class: "bar" });
    bar.style.width = `${100 * probabilities[token]}%`;
    return make("li", {}, make("span", {}, names[token]), bar,
      make("span", { class: "number" }, probabilities[token].toFixed(2)));
  }));
}

// Returns names for the viewer. Sentences number equal names: `1st r`, `2nd r`.
function tokens(shown) {
  const ordinals = new Intl.PluralRules("en", { type: "ordinal" });
  const ends = { one: "st", two: "nd", few: "rd", other: "th" };
  const said = shown.map((name, i) => {
    const count = shown.slice(0, i + 1).filter((each) => each === name).length;
    return shown.indexOf(name) === shown.lastIndexOf(name) ? name
      : `${count}${ends[ordinals.select(count)]} ${name}`;
  });
  return { shown, said };
}

// What is left of the letters after those that are known: each once, in quotes.
function unknown(letters, known) {
  const strange = [...new Set(letters)].filter((letter) => !known.includes(letter));
  return strange.map((letter) => `“${letter}”`).join(", ");
}
