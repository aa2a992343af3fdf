// Lesson 00's translator on what one types: see models/trained.py and models/whole_game.py.
const ONES = ("null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn " +
  "vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn").split(" ");
const TENS = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split(" ");
const LARGEST = 9999;
const MOST_WORDS = 12;
const END = "<end>";
const A_WORD = 700; // milliseconds
const EMPTY = "Type a German numeral such as dreiundvierzig, or a number such as 43.";

eachLive("translator", translatorPage);

function translatorPage(figure, data) {
  const { characters, words, text: first } = data;
  const models = Object.entries(data.weights).map(([name, packed]) => (
    { name: name || "trained beforehand", translate: translator(unpacked(packed), data) }));
  let model = models[0];
  let now; // what was read: its letters, the steps of the translation, which of them is shown, the
  // letters that steps are forced to attend to, and the steps in the viewer
  let rest; // of the viewer
  let writing; // the timer of the next word

  const { input, box } = textBox(
    `Type any number up to ${LARGEST}, or a German numeral`, first, (typed) => change(typed));
  input.lang = "de";
  const hint = make("p", { class: "hint" });
  const next = button("Next word", () => go(now.step + 1));
  const back = button("Back", () => go(now.step - 1));
  const whole = button("All words", () => go(-1));
  const again = button("Replay", () => write(0));
  const free = button("Undo choices", () => translate({}, -1));
  const place = make("span");
  const bars = make("ol", { class: "bars", "aria-label": "The most likely next words" });
  const help = make("p", {}, `${TOUCHED ? "Touch" : "Click"} a letter to force the first word to look at it.`);
  const story = make("p");
  const compared = make("p");
  const output = make("div", {}, make("div", { class: "row", role: "group",
    "aria-label": "Word by word" }, again, next, back, whole, free, place), story, bars, compared);
  const { say, view, place: map } = livePage(figure, "A translator that runs in this page",
    ...choice(), make("div", { class: "row" }, box, hint), output);
  output.before(map);
  figure.model = { german, read, translate: (letters, forced) => model.translate(ids(letters), forced) };
  change(first, true);
  whenSeen(figure, () => write(0));

  function ids(letters) {
    return [...letters].map((letter) => characters.indexOf(letter));
  }

  function change(typed, quiet = false) {
    clearTimeout(writing);
    const { letters, note, wrong } = read(typed, data);
    hint.textContent = wrong ?? note;
    input.setAttribute("aria-invalid", Boolean(wrong));
    output.hidden = Boolean(wrong);
    now = undefined;
    if (wrong) {
      view();
      say(wrong);
      return;
    }
    now = { letters };
    translate({}, -1);
    say(`${said(now.written.length)}. ${note}`);
    if (!quiet) write(0);
  }

  // Translates with the attention of some steps forced onto a letter, and shows a step.
  function translate(forced, step) {
    const letters = ids(now.letters);
    const steps = model.translate(letters, forced);
    const written = steps.filter(({ word }) => words[word] !== END);
    const rows = steps.filter((each, at) => words[each.word] !== END || at in forced);
    now = { ...now, forced, steps, step, written, rows };
    const isForced = Object.keys(forced).length > 0;
    hide(free, !isForced);
    const others = models.filter((each) => each !== model).map((each) =>
      `The model “${each.name}” writes: ${sentence(each.translate(letters))}.`);
    const own = `Without your choice, it writes: ${sentence(model.translate(letters))}.`;
    compared.textContent = [...(isForced ? [own] : []), ...others].join(" ");
    showMap();
    go(step);
  }

  // Forces the word that is shown, or the first one, onto a letter. Later words follow from it.
  function force(letter) {
    const step = Math.max(now.step, 0);
    const earlier = Object.entries(now.forced).filter(([at]) => at < step);
    const isFocused = map.contains(document.activeElement);
    translate({ ...Object.fromEntries(earlier), [step]: letter }, step);
    if (isFocused) map.querySelectorAll(".key [role=option]")[letter]?.focus();
  }

  // A button that disappears leaves the keyboard's focus to the one that stays.
  function hide(each, isHidden) {
    if (isHidden && each === document.activeElement) next.focus();
    each.hidden = isHidden;
  }

  // The first `count` words.
  function said(count) {
    return sentence(now.written.slice(0, count));
  }

  function sentence(steps) {
    return steps.map(({ word }) => words[word]).filter((word) => word !== END).join(" ");
  }

  // A choice of models, where there are several.
  function choice() {
    if (models.length === 1) return [];
    const options = models.map(({ name }) => make("button", { type: "button" }, name));
    const { list, choose } = choices("Model", options, (to) => {
      model = models[to];
      if (now) change(input.value);
    });
    list.className = "row";
    choose(0);
    return [list];
  }

  // Writes one word after the other, and then shows them all; at once where nothing may move.
  function write(step) {
    if (!now || still()) return;
    const done = step >= now.written.length;
    go(done ? -1 : step, true);
    if (!done) writing = setTimeout(() => write(step + 1), A_WORD);
  }

  // Shows what the decoder did at one step, or at -1 everything; in `passing` only the arcs.
  function go(step, passing = false) {
    clearTimeout(writing);
    const { steps, written, rows } = now;
    const all = step < 0;
    now.step = step;
    again.hidden = still();
    for (const each of [back, whole]) hide(each, all || passing);
    next.setAttribute("aria-disabled", step === steps.length - 1);
    place.textContent = all ? "" : step === written.length ? "End of the output"
      : `Word ${step + 1} of ${written.length}`;
    help.hidden = !(all || passing);
    story.textContent = all || passing ? "" : `Written so far: ${said(step) || "nothing"}.
      ${step in now.forced ? `You chose letter ${now.forced[step] + 1}, “${
        [...now.letters][now.forced[step]]}”, for the next word:` : "Next:"}`;
    fillBars(bars, all || passing ? [] : steps[step].probabilities, words.map(shownWord));
    if (rows.length) {
      const isRow = !all && step < rows.length;
      rest(isRow ? { query: step } : {}, isRow ? step + 1 : rows.length);
    }
    if (all || passing) return;
    const { word, probabilities } = steps[step];
    const likely = `${shownWord(words[word])}, ${probabilities[word].toFixed(2)}`;
    say(`${place.textContent}: ${likely}. ${figure.querySelector(".said")?.textContent ?? ""}`);
  }

  function showMap() {
    const { rows, written } = now;
    rest = view(rows.length && {
      heads: ["attention"], alt: `Which letters each word of ${said(written.length)} looks at`,
      queries: tokens(rows.map(({ word }) => shownWord(words[word]))),
      keys: tokens([...now.letters]),
      pick: force, help,
      sides: { query: "words", key: "letters" }, numbers: rows.flatMap(({ map }) => map),
    });
  }
}

function shownWord(word) {
  return word === END ? "(end)" : word;
}

// The letters that a typed text means and a note on them, or what is wrong with it.
function read(typed, { characters, longest }) {
  const text = typed.normalize("NFC").toLowerCase().replace(/\s+/g, "")
    .replace("dreissig", "dreißig"); // as in Switzerland, and in capital letters
  if (!text) return { wrong: EMPTY };
  if (/^\d+$/.test(text)) {
    const number = Number(text);
    if (number < 1 || number > LARGEST) {
      return { wrong: `Numbers here go from 1 to ${LARGEST}; ${text} does not.` };
    }
    return { letters: german(number), note: `${number} in German: ${german(number)}.` };
  }
  const strange = unknown(text, characters);
  if (strange) {
    const known = characters.filter((each) => each.length === 1).join(" ");
    return { wrong: `The model has never seen ${strange}. It knows: ${known}` };
  }
  const length = [...text].length;
  if (length > longest) return { wrong: `At most ${longest} letters fit; these are ${length}.` };
  const number = numbersByName().get(text);
  const note = number ? `${text} is ${number}.`
    : `No number from 1 to ${LARGEST} is written so; the model answers all the same.`;
  return { letters: text, note };
}

function german(number) {
  return numeral(number) + (number % 100 === 1 ? "s" : "");
}

function numeral(number) {
  for (const [size, word] of [[1000, "tausend"], [100, "hundert"]]) {
    if (number < size) continue;
    const rest = number % size;
    return numeral(Math.floor(number / size)) + word + (rest ? numeral(rest) : "");
  }
  if (number < 20) return ONES[number];
  return (number % 10 ? `${ONES[number % 10]}und` : "") + TENS[Math.floor(number / 10) - 2];
}

function numbersByName() {
  if (!numbersByName.found) {
    const numbers = Array.from({ length: LARGEST }, (_, i) => i + 1);
    numbersByName.found = new Map(numbers.map((number) => [german(number), number]));
  }
  return numbersByName.found;
}

// The network. Called with the ids of letters it gives a step for each word: the logits and
// probabilities of the next word, the likeliest, and how much was looked at which letter. `forced`
// has the letters, by step, that get all the weight.
function translator(weights, { words, heads, window: near }) {
  const { positions } = weights;
  const wide = weights["norm.weight"].length;
  const [start, end] = ["<start>", END].map((word) => words.indexOf(word));
  const dense = (x, name) => linear(x, weights[`${name}.weight`], weights[`${name}.bias`]);
  const norm = (x, name) => layerNorm(x, weights[`${name}.weight`], weights[`${name}.bias`]);

  return function translate(letters, forced = {}) {
    const memory = readLetters(letters);
    const across = ["k", "v"].map((part) => projected(memory, "decoder.cross_attention", part));
    const past = [[], []]; // keys and values of the words so far
    const steps = [];
    for (let word = start; word !== end && steps.length < MOST_WORDS;) {
      const { logits, map } = nextWord(word, steps.length, past, across, forced[steps.length]);
      word = largest(logits);
      steps.push({ word, logits, probabilities: softmax(logits), map });
    }
    return steps;
  };

  function readLetters(letters) {
    const x = placed(letters, weights["characters.weight"], positions, wide);
    const name = "encoder.attention";
    const parts = projectedAll(norm(x, "encoder.norm_1"), name);
    const sees = (i, j) => Math.abs(i - j) <= near;
    const seen = plus(x, dense(attend(...parts, heads, sees).outputs, `${name}.out_proj`));
    return fedForward(seen, "encoder", "encoder.norm_2");
  }

  // One more word of the decoder; `past` keeps what later words will look back at.
  function nextWord(word, place, past, across, forced) {
    let y = placed([word], weights["words.weight"], positions, wide, place);
    const back = "decoder.self_attention";
    const [query, ...parts] = projectedAll(norm(y, "decoder.norm_1"), back);
    past.forEach((kept, i) => kept.push(...parts[i]));
    y = plus(y, dense(attend(query, ...past, heads).outputs, `${back}.out_proj`));
    const name = "decoder.cross_attention";
    const asked = projected(norm(y, "decoder.norm_2"), name, "q");
    const sees = (_, letter) => forced === undefined || letter === forced;
    const looked = attend(asked, ...across, 1, sees);
    y = plus(y, dense(looked.outputs, `${name}.out_proj`));
    y = fedForward(y, "decoder", "decoder.norm_3");
    const map = looked.weights[0][0].map((weight) => weight ?? 0);
    return { logits: dense(norm(y, "norm"), "to_logits")[0], map };
  }

  function fedForward(x, block, before) {
    const hidden = relu(dense(norm(x, before), `${block}.feed_forward.0`));
    return plus(x, dense(hidden, `${block}.feed_forward.2`));
  }

  function projectedAll(x, name) {
    return ["q", "k", "v"].map((part) => projected(x, name, part));
  }

  // torch keeps the projections to queries, keys and values one above the other.
  function projected(x, name, part) {
    const at = "qkv".indexOf(part);
    const [weight, bias] = ["weight", "bias"].map((kind) => weights[`${name}.in_proj_${kind}`]);
    return linear(x, weight.subarray(at * wide * wide, (at + 1) * wide * wide),
      bias?.subarray(at * wide, (at + 1) * wide));
  }
}
