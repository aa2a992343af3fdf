// A small model of letters on what one types: see live_models.py and models/trained.py.
for (const figure of document.querySelectorAll("figure.course-figure[data-live=induction]")) {
  const data = JSON.parse(figure.querySelector("script.live").textContent);
  figure.removeAttribute("data-live");
  inductionPage(figure, data);
}

function inductionPage(figure, { letters, text: first, longest, heads, head, colours, weights }) {
  const predict = inductionModel(unpacked(weights), heads);
  let now; // the letters, what the model made of them, the place and the head that are shown
  const { input, box } = textBox(
    `Letters, at most ${longest}; repeat some`, first, (typed) => change(typed));
  const hint = make("p", { class: "hint" });
  const places = make("div", { class: "row", role: "radiogroup", "aria-label": "Predict after" });
  const story = make("p");
  const bars = make("ol", { class: "bars", "aria-label": "The five most likely next letters" });
  const output = make("div", {}, make("p", { "aria-hidden": true }, "Predict after:"), places,
    story, bars);
  const { say, view } = livePage(figure, "A model of letters that runs in this page", colours, box,
    hint, output);
  let rest;
  places.addEventListener("keydown", (event) => {
    const to = step(event, now.place, now.typed.length, true);
    if (to === undefined) return;
    go(to);
    places.children[to].focus();
  });
  figure.model = { predict: (typed) => predict(ids(typed)) };
  change(first);

  function ids(typed) {
    return [...typed].map((letter) => letters.indexOf(letter));
  }

  function change(text) {
    const typed = text.toUpperCase().replace(/\s+/g, "");
    const strange = unknown(typed, letters);
    const wrong = !typed ? "Type some letters, such as KTQBXKTQ."
      : strange ? `The model knows the letters A to Z; it has never seen ${strange}.`
      : typed.length > longest ? `At most ${longest} letters fit; these are ${typed.length}.` : "";
    hint.textContent = wrong;
    hint.hidden = !wrong;
    input.setAttribute("aria-invalid", Boolean(wrong));
    output.hidden = Boolean(wrong);
    if (wrong) {
      view();
      say(wrong);
      return;
    }
    now = { typed, ...predict(ids(typed)), head: now?.head ?? head };
    places.replaceChildren(...[...typed].map((letter, place) => {
      const choice = make("button", { type: "button", role: "radio",
        "aria-label": `${letter}, place ${place}` }, letter);
      choice.addEventListener("click", () => go(place));
      return choice;
    }));
    const names = tokens([...typed]);
    rest = view({ queries: names, keys: names, numbers: now.maps.flat(3), head: now.head,
      title: "Which letters each letter looks at",
      heads: now.maps.flatMap((layer, l) => layer.map((_, h) => `layer ${l} head ${h}`)),
      alt: `Each letter of ${typed} and the letters before it that it looks at`,
      chosen: (of) => (now.head = of) });
    go(typed.length - 1);
  }

  function go(place) {
    now.place = place;
    [...places.children].forEach((choice, i) => {
      choice.setAttribute("aria-checked", i === place);
      choice.tabIndex = i === place ? 0 : -1;
    });
    const probabilities = softmax(now.logits[place]);
    fillBars(bars, probabilities, letters);
    story.textContent = told(place, probabilities);
    rest({ query: place });
    say(story.textContent);
  }

  // What is expected after a letter, and what followed it before.
  function told(place, probabilities) {
    const { typed } = now;
    const best = largest(probabilities);
    const expected = `After ${typed.slice(0, place + 1)} the model expects ${letters[best]} ` +
      `(probability ${probabilities[best].toFixed(2)}).`;
    const before = place ? typed.lastIndexOf(typed[place], place - 1) : -1;
    return before < 0 ? `${expected} No ${typed[place]} came before: it has to guess.`
      : `${expected} The ${typed[place]} before, at place ${before}, was followed by ` +
        `${typed[before + 1]}.`;
  }
}

// The network. Called with the ids of letters it gives the logits of the next one after each place,
// and the maps by layer, head, query and key.
function inductionModel(weights, heads) {
  const { positions } = weights;
  const wide = weights["norm.weight"].length;
  const norm = (x, name) => layerNorm(x, weights[`${name}.weight`], weights[`${name}.bias`]);
  const causal = (query, key) => key <= query;

  return function predict(letters) {
    let x = placed(letters, weights["tokens.weight"], positions, wide);
    const maps = [];
    for (let layer = 0; weights[`blocks.${layer}.norm_1.weight`]; layer++) {
      const block = `blocks.${layer}`;
      const normed = norm(x, `${block}.norm_1`);
      const all = weights[`${block}.attention.W_qkv.weight`];
      const [queries, keys, values] = [0, 1, 2].map((part) =>
        linear(normed, all.subarray(part * wide * wide, (part + 1) * wide * wide)));
      const looked = attend(queries, keys, values, heads, causal);
      x = plus(x, linear(looked.outputs, weights[`${block}.attention.W_o.weight`]));
      maps.push(looked.weights);
    }
    const logits = linear(norm(x, "norm"), weights["to_logits.weight"], weights["to_logits.bias"]);
    return { logits, maps };
  };
}
