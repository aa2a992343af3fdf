// The front page: an address for the number that is typed, and the game "Which bug is it?".
const GAME = /^#bug-(\d+)$/;

function make(tag, attributes, ...inside) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...inside);
  return made;
}

// The page's address ends with the number in the translator's box, and an address sets the box.
function shareNumber(box) {
  const read = () => {
    const number = /^#\d+$/.test(location.hash) && location.hash.slice(1);
    if (number && number !== box.value) set(number);
  };
  const set = (number) => {
    box.value = number;
    box.dispatchEvent(new Event("input"));
  };
  set("43");
  read();
  addEventListener("hashchange", read);
  box.addEventListener("input", (event) => {
    const typed = box.value.trim();
    if (event.isTrusted) history.replaceState(null, "", /^\d+$/.test(typed) ? `#${typed}` : " ");
  });
}

// Shows one round at a time. A guess opens the report of the check.
function play(game) {
  const rounds = [...game.querySelectorAll(".round")];
  const back = make("button", { type: "button" }, "Back");
  const next = make("button", { type: "button" }, "Next bug");
  const score = make("span", {});
  let [now, guessed, right] = [0, 0, 0];
  game.append(make("div", { class: "turns", role: "group", "aria-label": "Rounds" }, back, next,
    score));
  rounds.forEach(ask);
  back.addEventListener("click", () => go(now - 1));
  next.addEventListener("click", () => go(now + 1));
  addEventListener("hashchange", follow);
  show(0);
  follow();

  // Round `to`, whose heading is read next, and whose address can be shared.
  function go(to) {
    show((to + rounds.length) % rounds.length);
    history.replaceState(null, "", `#${rounds[now].id}`);
    rounds[now].querySelector("h3").focus();
  }

  function show(which) {
    now = which;
    rounds.forEach((round, i) => (round.hidden = i !== now));
  }

  function follow() {
    const number = Number(GAME.exec(location.hash)?.[1]);
    if (!rounds[number - 1]) return;
    show(number - 1);
    rounds[now].scrollIntoView();
  }

  function ask(round) {
    const facts = round.querySelector(".facts");
    const report = round.querySelector("details");
    const said = make("p", { role: "status" });
    const answer = Number(facts.dataset.right);
    const buttons = [...facts.children].map((fact, i) => {
      const button = make("button", { type: "button", "aria-pressed": false }, ...fact.childNodes);
      button.addEventListener("click", () => guess(i));
      fact.append(button);
      return button;
    });
    round.querySelector("h3").tabIndex = -1;
    report.hidden = true;
    report.before(said);

    function guess(i) {
      if (!report.hidden) return;
      const hit = i === answer;
      guessed += 1;
      right += hit;
      buttons.forEach((button, j) => {
        button.setAttribute("aria-disabled", true);
        button.setAttribute("aria-pressed", j === i);
        if (j === answer) button.prepend(make("strong", {}, "✓ The check says: "));
        else if (j === i) button.prepend(make("strong", {}, "✗ Your guess: "));
      });
      said.textContent = hit ? "Right. The report of the check follows."
        : `Not this one. The check names sentence ${answer + 1}, and its report follows.`;
      score.textContent = `${right} of ${guessed} right`;
      report.hidden = false;
      report.open = true;
    }
  }
}

addEventListener("DOMContentLoaded", () => {
  shareNumber(document.querySelector("figure.course-figure .course-live input"));
  play(document.querySelector(".which-bug"));
});
