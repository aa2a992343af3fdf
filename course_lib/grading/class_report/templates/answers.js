
// Keep what is typed in this browser, and save it as a table for `course answers --read`.
const cards = [...document.querySelectorAll(".answer")].map((card) => {
  const rows = JSON.parse(card.dataset.rows);
  const [points, comment] = card.querySelectorAll("input, textarea");
  return { card, rows, points, comment, place: "course-answers " + rows[0][2] };
});
const memory = (act) => { try { return act(localStorage); } catch { return null; } };

const count = () => {
  for (const { card, points } of cards) card.classList.toggle("done", points.value !== "");
  const done = cards.filter(({ points }) => points.value !== "").length;
  document.getElementById("count").textContent = `${done} of ${cards.length} texts have points`;
};

for (const { points, comment, place } of cards) {
  const kept = memory((store) => JSON.parse(store.getItem(place)));
  if (kept) [points.value, comment.value] = kept;
  for (const field of [points, comment]) {
    field.addEventListener("input", () => {
      memory((store) => store.setItem(place, JSON.stringify([points.value, comment.value])));
      if (!document.body.classList.contains("only-new")) count();
    });
  }
  points.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    const shown = cards.map((one) => one.points).filter((one) => one.offsetParent);
    shown[shown.indexOf(points) + 1]?.focus();
  });
}

document.getElementById("only").addEventListener("change", (event) => {
  count();
  document.body.classList.toggle("only-new", event.target.checked);
});

document.getElementById("save").addEventListener("click", () => {
  const wrong = cards.find(({ points }) => !points.checkValidity());
  if (wrong) return wrong.points.reportValidity();
  const table = [["student", "question", "key", "points", "comment"]];
  for (const { rows, points, comment } of cards) {
    // A spreadsheet takes these characters for the beginning of a formula.
    const said = comment.value.trim().replace(/^[=+\-@＝＋－＠]/, "'$&");
    if (points.value || said) for (const row of rows) table.push([...row, points.value, said]);
  }
  const quoted = table.map((row) => row.map((cell) => `"${cell.replaceAll('"', '""')}"`).join(","));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(["\ufeff" + quoted.join("\r\n") + "\r\n"], { type: "text/csv" }));
  link.download = document.querySelector("main").dataset.name + "_given.csv";
  link.click();
});
count();
