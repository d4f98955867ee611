// The page of claims: a reader chooses the margin and the seeds, and sees which verdicts move. Nothing is judged here: every
// verdict was written into the page by the library.
"use strict";

(() => {
  const controls = document.getElementById("verdict-settings");
  if (!controls) return;
  const { rows, verdicts } = JSON.parse(document.getElementById("verdict-data").textContent);
  const choices = [...controls.querySelectorAll("select")];
  const usual = choices.map((choice) => choice.value).join(" ");

  // The cells of verdicts by the names of their claims, whose rows stand in the order of the tables.
  const cells = {};
  for (const [id, names] of Object.entries(rows)) {
    const table = document.getElementById(id)?.closest("table") ?? document.querySelector(`#${id} table, table#${id}`);
    if (!table) continue;
    const column = [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent.trim() === "verdict");
    [...table.tBodies[0].rows].forEach((row, n) => {
      cells[names[n]] = { cell: row.cells[column], printed: row.cells[column].innerHTML };
    });
  }

  function show() {
    const asked = choices.map((choice) => choice.value).join(" ");
    let moved = 0;
    for (const [name, { cell, printed }] of Object.entries(cells)) {
      const differs = verdicts[asked][name] !== verdicts[usual][name];
      moved += differs;
      cell.classList.toggle("moved", differs);
      if (differs) cell.textContent = verdicts[asked][name];
      else cell.innerHTML = printed;
    }
    const claims = Object.keys(cells).length;
    controls.querySelector("output").textContent = asked === usual ? "as by the rule" : `${moved} of ${claims} verdicts move`;
  }

  choices.forEach((choice) => choice.addEventListener("change", show));
  controls.hidden = false;
  show();
})();
