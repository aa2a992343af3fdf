
// Sort the table of students by a column, and show only the students that fit the filters.
const collator = new Intl.Collator(undefined, { numeric: true });
for (const table of document.querySelectorAll("table.students")) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  const text = (row, at) => row.cells[at]?.dataset.value ?? row.cells[at]?.textContent.trim() ?? "";

  heads.forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.setAttribute("aria-label", "Sort by " + head.textContent.trim().replaceAll("\u200b", ""));
    head.append(" ", button);
    button.addEventListener("click", () => {
      const order = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const is_number = head.classList.contains("number");
      const number = (row) => is_number ? parseFloat(text(row, at).replace(/[^\d.]+/, "")) : NaN;
      rows.sort((one, other) => {
        const [a, b] = [text(one, at), text(other, at)];
        if (!a || !b) return !a - !b; // the blank ones are last in both orders
        return sign * (number(one) - number(other) || collator.compare(a, b));
      });
      body.append(...rows);
    });
  });

  const bar = document.createElement("div");
  bar.className = "filters";
  bar.setAttribute("role", "search");
  bar.setAttribute("aria-label", "Students");
  const add = (label, field) => {
    const place = document.createElement("label");
    place.append(label + " ", field);
    bar.append(place);
    field.addEventListener("input", show);
    return field;
  };
  const field = (about) => Object.assign(document.createElement("input"), about);
  const found = new Set(rows.flatMap((row) => row.dataset.states.split(",")).filter(Boolean));
  const states = ["missing", "zero", "low", "waiting", "not_graded", "late"];
  const choice = document.createElement("select");
  for (const one of ["any", ...states.filter((one) => found.has(one))]) {
    choice.append(new Option(one.replace("_", " "), one));
  }
  const name = add("Name or section", field({ type: "search" }));
  const state = add("State", choice);
  const most = add("At most %", field({ type: "number", min: 0, max: 100 }));
  const count = document.createElement("output");
  bar.append(count);
  table.closest(".wide").before(bar);

  function show() {
    const words = name.value.toLowerCase();
    let shown = 0;
    for (const row of rows) {
      const about = (row.cells[0].textContent + " " + row.dataset.section).toLowerCase();
      row.hidden = !about.includes(words) ||
        (state.value !== "any" && !row.dataset.states.split(",").includes(state.value)) ||
        (most.value !== "" && !(row.dataset.share && row.dataset.share * 100 <= +most.value));
      shown += !row.hidden;
    }
    count.textContent = `${shown} of ${rows.length} students`;
  }
  show();
}
