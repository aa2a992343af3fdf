// A small model of letters on what one types: see models/trained.py.
for (const figure of document.querySelectorAll("figure.course-figure[data-live=induction]")) {
  const data = JSON.parse(figure.querySelector("script.live").textContent);
  figure.removeAttribute("data-live");
  inductionPage(figure, data);
}

function inductionPage(figure, { letters, text: first, longest, heads, head, colors, weights }) {
  const predict = inductionModel(unpacked(weights), heads);
  let now; // the letters, what the model made of them, the place and the head that are shown
  const { input, box } = textBox(
    `Letters, at most ${longest}; repeat some`, first, (typed) => change(typed));
  const hint = make("p", { class: "hint" });
  const places = make("div");
  const story = make("p");
  const bars = make("ol", { class: "bars", "aria-label": "The five most likely next letters" });
  const output = make("div", {}, make("p", { "aria-hidden": true }, "Predict after:"), places,
    story, bars);
  const { say, view } = livePage(figure, "A model of letters that runs in this page", colors, box,
    hint, output, make("p", {}, "Heads are named layer.head."));
  let rest;
  const headName = (of) => `head ${Math.floor(of / heads)}.${of % heads}`;
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
    const options = [...typed].map((letter, place) => make("button", { type: "button",
      "aria-label": `${letter}, position ${place}` }, letter));
    const picked = choices("Predict after", options, go);
    picked.list.className = "row";
    places.replaceChildren(picked.list);
    const names = tokens([...typed]);
    rest = view({ queries: names, keys: names, numbers: now.maps.flat(3), head: now.head,
      heads: now.maps.flat().map((_, of) => headName(of)),
      alt: `Each letter of ${typed} and the letters before it that it looks at`,
      chosen: (of) => {
        now.head = of;
        if (now.place !== undefined) story.textContent = told(now.place);
      } });
    picked.choose(typed.length - 1);
  }

  function go(place) {
    now.place = place;
    fillBars(bars, softmax(now.logits[place]), letters);
    story.textContent = told(place);
    rest({ query: place });
    say(story.textContent);
  }

  // What is expected after a letter, and what the chosen head looked at.
  function told(place) {
    const { typed, maps, head } = now;
    const probabilities = softmax(now.logits[place]);
    const expected = letters[largest(probabilities)];
    const row = maps.flat()[head][place].slice(0, place + 1);
    const at = largest(row);
    let same = 0; // letters before both that are the same
    while (same < at && typed[at - 1 - same] === typed[place - same]) same++;
    const before = typed.slice(at - Math.max(1, same), at);
    const follows = at ? `, which followed ${same ? "the same " : ""}${before}` : "";
    const looked = at === place ? "looked at this letter itself"
      : `looked at the ${typed[at]} at position ${at}${follows}`;
    const other = at < place && typed[at] !== expected
      ? ` That is not the ${expected} that the model expects: what a head reads is not yet the answer.`
      : "";
    return `After ${typed.slice(0, place + 1)} the model expects ${expected} (probability ` +
      `${Math.max(...probabilities).toFixed(2)}). With ${row[at].toFixed(2)} of its weight, ` +
      `${headName(head)} ${looked}.${other}`;
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
