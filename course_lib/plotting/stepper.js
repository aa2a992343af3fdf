const [FRAME, WHOLE] = [250, 6000]; // milliseconds: the least for a picture, and for a few pictures together
const HELD = 12; // frames that the last one of a loop stays
// Gives each figure that has frames its controls, one for each argument of what drew them.
eachLive("stepper", (figure, { controls, frames, ...how }) => {
  const packed = Uint8Array.from(atob(frames), (letter) => letter.charCodeAt(0));
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  new Response(unpacked).json().then((pictures) => steps(figure, controls, pictures, how));
});

function steps(figure, controls, pictures, { plays, loops }) {
  const said = make("span", { "aria-live": "polite",
    style: "position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)" });
  figure.querySelector("figcaption").replaceWith(said);
  const inputs = controls.map((control) => input(control, show));
  const form = make("form", { class: "course-controls",
    style: "display:flex;flex-wrap:wrap;align-items:center;gap:4px 20px" },
    ...inputs.map((each) => each.label));
  form.onsubmit = () => false;
  const title = figure.querySelector(":scope > .title");
  figure.prepend(...[title].filter(Boolean), form);
  if (plays) {
    const button = player(inputs[0].control, controls[0].options.length, said, loops);
    form.prepend(button);
    if (loops || controls[0].start === 0) playOnceInView(figure, button);
  }

  // Frames lie in the order of a nested loop over the controls, the last one innermost.
  function show() {
    const place = inputs.reduce((sum, each, i) => sum * controls[i].options.length + each.at(), 0);
    const { svg, alt, data, title: message } = pictures[place];
    if (title) title.firstChild.textContent = message;
    figure.querySelector(":scope > svg").replaceWith(picture(svg, alt));
    const table = figure.querySelector("details.data table");
    if (table) table.outerHTML = data;
    said.textContent = alt;
  }
  if (pictures.every(({ handle }) => handle !== null)) drag(figure, controls, inputs[0], pictures);
}

// What the first control moves can be pulled along in the picture itself.
function drag(figure, controls, { control }, pictures) {
  const apart = pictures.length / controls[0].options.length;
  const handles = controls[0].options.map((_, i) => pictures[i * apart].handle);
  const pull = (event) => {
    const drawn = figure.querySelector(":scope > svg");
    figure.style.cursor = drawn.contains(event.target) ? "ew-resize" : "";
    if (!event.buttons || !figure.style.cursor) return;
    const { left, width } = drawn.getBoundingClientRect();
    const away = handles.map((handle) => Math.abs(handle - (event.clientX - left) / width));
    control.value = away.indexOf(Math.min(...away));
    control.dispatchEvent(new Event("input"));
    event.preventDefault();
  };
  figure.querySelector("form").append("You can also drag the dashed line.");
  figure.addEventListener("pointerdown", pull);
  figure.addEventListener("pointermove", pull);
  figure.style.touchAction = "pan-y";
}

// A button that moves a slider from its beginning to its end, and stops it. In a loop, the slider
// moves at once and begins anew, unless the reader prefers that nothing moves.
function player(control, count, said, loops) {
  const button = make("button", { type: "button", style: "font:inherit;color:inherit;background:" +
    "none;border:1px solid #777;border-radius:4px;padding:5px 12px;min-width:5em;cursor:pointer",
  }, "Play");
  let timer;
  let held = 0; // frames since the end
  const stop = () => {
    clearInterval(timer);
    timer = undefined;
    button.textContent = "Play";
    said.setAttribute("aria-live", "polite");
  };
  const move = (to) => {
    control.value = to;
    control.dispatchEvent(new Event("input"));
    if (to >= count - 1 && !loops) stop();
  };
  const next = () => {
    const at = Number(control.value);
    if (at < count - 1) move(at + 1);
    else if (!loops) stop();
    else if (++held % HELD === 0) move(0);
  };
  button.onclick = () => {
    if (timer) return stop();
    button.textContent = "Pause";
    said.setAttribute("aria-live", "off"); // every frame would be read aloud
    timer = setInterval(next, Math.max(FRAME, WHOLE / count));
    move(Number(control.value) >= count - 1 ? 0 : Number(control.value));
    return undefined;
  };
  return button;
}

function playOnceInView(figure, button) {
  if (still()) return;
  const watch = whenSeen(figure, () => button.textContent === "Play" && button.click());
  figure.addEventListener("pointerdown", () => watch.disconnect(), { once: true });
}

// A slider for numbers, buttons for a few choices, and a menu for more.
function input({ name, options, start, widget }, changed) {
  if (widget === "RadioButtons") return buttons(name, options, start, changed);
  const slides = widget === "SelectionSlider";
  const control = make(slides ? "input" : "select");
  const said = make("output");
  const label = make("label", { style: "display:flex;flex-wrap:wrap;align-items:center;" +
    "gap:0 8px;max-width:36em" }, name, control, said); // a label names the first control in it
  if (slides) {
    Object.assign(control, { type: "range", min: 0, max: options.length - 1, step: 1 });
    control.style.cssText = "flex:1 1 260px;order:1;min-width:0;padding:0"; // a line of its own on a phone
    label.style.flex = "1 1 20em";
    said.style.minWidth = `${Math.max(...options.map((each) => each.length))}ch`;
  } else {
    control.append(...options.map((words, i) => new Option(words, i)));
  }
  control.value = start;
  const say = () => {
    if (!slides) return;
    said.textContent = options[control.value];
    control.setAttribute("aria-valuetext", options[control.value]);
  };
  control.addEventListener("input", () => {
    say();
    changed();
  });
  say();
  return { label, control, at: () => Number(control.value) };
}

// Radio buttons, one of which is chosen.
function buttons(name, options, at, changed) {
  const label = make("div", { role: "radiogroup", "aria-label": name,
    style: "display:flex;flex-wrap:wrap;align-items:center;gap:6px 8px" },
    name, ...options.map((words, i) => {
      const control = make("input", { type: "radio", name, style: "margin:0" });
      control.checked = i === at;
      control.addEventListener("input", () => {
        at = i;
        changed();
      });
      return make("label", { style: "display:flex;align-items:center;gap:6px;border:1px solid " +
        "#777;border-radius:4px;padding:5px 10px;cursor:pointer" }, control, words);
    }));
  return { label, at: () => at };
}
