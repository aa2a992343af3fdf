// Lesson 00's translator on what one types: see live_models.py and models/whole_game.py.
const ONES = ("null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn " +
  "vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn").split(" ");
const TENS = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split(" ");
const LARGEST = 9999;
const MOST_WORDS = 12;
const END = "<end>";
const EMPTY = "Type a German numeral such as dreiundvierzig, or a number such as 43.";

for (const figure of document.querySelectorAll("figure.course-figure[data-live=translator]")) {
  const data = JSON.parse(figure.querySelector("script.live").textContent);
  figure.removeAttribute("data-live");
  translatorPage(figure, data);
}

function translatorPage(figure, data) {
  const { characters, words, text: first, colours } = data;
  const translate = translator(unpacked(data.weights), data);
  let now; // what was read: its letters, the steps of the translation, which of them is shown

  const { input, box } = textBox(
    `A German numeral, or a number from 1 to ${LARGEST}`, first, (typed) => change(typed));
  input.lang = "de";
  const hint = make("p", { class: "hint" });
  const result = make("p", { class: "result", lang: "en" });
  const back = button("Back", () => go(now.step - 1));
  const next = button("Next word", () => go(now.step + 1));
  const whole = button("All words", () => go(-1));
  const place = make("span");
  const bars = make("ol", { class: "bars", "aria-label": "The five most likely next words" });
  const story = make("p");
  const output = make("div", {}, result,
    make("div", { class: "row", role: "group", "aria-label": "Word by word" }, back, next, whole,
      place), story, bars);
  const { say, view } = livePage(figure, "A translator that runs in this page", colours, box,
    hint, output);
  figure.model = { german, read, translate: (letters) => translate(ids(letters)) };
  change(first);

  function ids(letters) {
    return [...letters].map((letter) => characters.indexOf(letter));
  }

  function change(typed) {
    const { letters, note, wrong } = read(typed, data);
    hint.textContent = wrong ?? note;
    input.setAttribute("aria-invalid", Boolean(wrong));
    output.hidden = Boolean(wrong);
    if (wrong) {
      view();
      say(wrong);
      return;
    }
    now = { letters, steps: translate(ids(letters)), step: -1 };
    result.textContent = written(now.steps.length).join(" ");
    go(-1);
    say(`${result.textContent}. ${note}`);
  }

  // The first `count` words, without the end.
  function written(count) {
    return now.steps.slice(0, count).map(({ word }) => words[word]).filter((word) => word !== END);
  }

  // Shows what the decoder did at one step, or at -1 everything.
  function go(step) {
    const { steps } = now;
    const all = step < 0;
    now.step = step;
    back.setAttribute("aria-disabled", all);
    whole.setAttribute("aria-disabled", all);
    next.setAttribute("aria-disabled", step === steps.length - 1);
    place.textContent = all ? "Next word: see it written, one word after the other."
      : `Step ${step + 1} of ${steps.length}`;
    story.textContent = all ? "" : `Written so far: ${written(step).join(" ") || "nothing"}. Next:`;
    fillBars(bars, all ? [] : steps[step].probabilities, words.map(shownWord));
    showMap(all ? steps.filter(({ word }) => words[word] !== END) : steps.slice(0, step + 1),
      all ? {} : { query: step });
    if (all) return;
    const { word, probabilities } = steps[step];
    const likely = `${shownWord(words[word])}, ${probabilities[word].toFixed(2)}`;
    say(`${place.textContent}: ${likely}. ${figure.querySelector(".said").textContent}`);
  }

  function showMap(rows, rest) {
    if (!rows.length) return view(); // it wrote nothing
    return view({
      title: "Which letters each word looked at", heads: ["attention"], rest,
      queries: tokens(rows.map(({ word }) => shownWord(words[word]))),
      keys: tokens([...now.letters]), sides: { query: "words", key: "letters" },
      numbers: rows.flatMap(({ map }) => map),
      alt: `Each word of the translation and the letters of ${now.letters} that it looks at`,
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
// probabilities of the next word, the likeliest, and how much was looked at which letter.
function translator(weights, { words, heads, window: near }) {
  const { positions } = weights;
  const wide = weights["norm.weight"].length;
  const [start, end] = ["<start>", END].map((word) => words.indexOf(word));
  const dense = (x, name) => linear(x, weights[`${name}.weight`], weights[`${name}.bias`]);
  const norm = (x, name) => layerNorm(x, weights[`${name}.weight`], weights[`${name}.bias`]);

  return function translate(letters) {
    const memory = readLetters(letters);
    const across = ["k", "v"].map((part) => projected(memory, "decoder.cross_attention", part));
    const past = [[], []]; // keys and values of the words so far
    const steps = [];
    for (let word = start; word !== end && steps.length < MOST_WORDS;) {
      const { logits, map } = nextWord(word, steps.length, past, across);
      word = largest(logits);
      steps.push({ word, logits, probabilities: softmax(logits), map });
    }
    return steps;
  };

  function readLetters(letters) {
    const x = placed(letters, weights["characters.weight"], positions, wide);
    const name = "encoder.look_around";
    const parts = projectedAll(norm(x, "encoder.before_looking"), name);
    const sees = (i, j) => Math.abs(i - j) <= near;
    const seen = plus(x, dense(attend(...parts, heads, sees).outputs, `${name}.out_proj`));
    return thought(seen, "encoder");
  }

  // One more word of the decoder; `past` keeps what later words will look back at.
  function nextWord(word, place, past, across) {
    let y = placed([word], weights["words.weight"], positions, wide, place);
    const back = "decoder.look_back";
    const [query, ...parts] = projectedAll(norm(y, "decoder.before_back"), back);
    past.forEach((kept, i) => kept.push(...parts[i]));
    y = plus(y, dense(attend(query, ...past, heads).outputs, `${back}.out_proj`));
    const name = "decoder.cross_attention";
    const asked = projected(norm(y, "decoder.before_across"), name, "q");
    const looked = attend(asked, ...across, 1);
    y = thought(plus(y, dense(looked.outputs, `${name}.out_proj`)), "decoder");
    return { logits: dense(norm(y, "norm"), "to_logits")[0], map: looked.weights[0][0] };
  }

  function thought(x, part) {
    const inner = relu(dense(norm(x, `${part}.before_thinking`), `${part}.think.0`));
    return plus(x, dense(inner, `${part}.think.2`));
  }

  function projectedAll(x, name) {
    return ["q", "k", "v"].map((part) => projected(x, name, part));
  }

  // torch keeps the projections to queries, keys and values one above the other.
  function projected(x, name, part) {
    const at = "qkv".indexOf(part);
    const [weight, bias] = ["weight", "bias"].map((kind) => weights[`${name}.in_proj_${kind}`]);
    return linear(x, weight.subarray(at * wide * wide, (at + 1) * wide * wide),
      bias.subarray(at * wide, (at + 1) * wide));
  }
}
