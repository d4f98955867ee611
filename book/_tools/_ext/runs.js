// A box above the table of runs: every word typed must be in the setting, or begin a word of the row.
const table = document.querySelector("table.runs");
const box = document.createElement("input");
box.type = "search";
box.placeholder = "Filter the runs, for example: ae-d spacy 42";
box.setAttribute("aria-label", "Filter the runs");
const count = document.createElement("output");
const filter = document.createElement("p");
filter.className = "filter-runs";
filter.append(box, count);
table.closest(".wide").before(filter);

function show() {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const setting of table.tBodies) {
    const [heading, ...runs] = setting.rows;
    const about = heading.querySelector("span").textContent.toLowerCase();
    for (const run of runs) {
      const row = [...run.cells].map((cell) => ` ${cell.textContent.toLowerCase()}`).join("");
      run.hidden = !words.every((word) => about.includes(word) || row.includes(` ${word}`));
      shown += !run.hidden;
    }
    setting.hidden = runs.every((run) => run.hidden);
  }
  count.textContent = `${shown.toLocaleString("en")} runs`;
}

box.addEventListener("input", show);
show();
