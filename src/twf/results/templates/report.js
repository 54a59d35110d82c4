"use strict";

// Headers sort their column: by number where they have the class, else by text. What is not a
// number, a dash, stays last both ways.
function value(row, column, numeric) {
  const text = row.cells[column].textContent.trim();
  return numeric ? parseFloat(text) : text;
}

function sortRows(table, header, column) {
  const ascending = header.getAttribute("aria-sort") !== "ascending";
  const numeric = header.classList.contains("number");
  const sign = ascending ? 1 : -1;
  const keyed = [...table.tBodies[0].rows].map((row) => [value(row, column, numeric), row]);
  keyed.sort(([a], [b]) => {
    if (!numeric) return sign * a.localeCompare(b, "en", { numeric: true });
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
    return sign * (a - b);
  });
  for (const other of table.tHead.querySelectorAll("th")) other.setAttribute("aria-sort", "none");
  header.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  table.tBodies[0].append(...keyed.map(([, row]) => row));
}

function makeSortable(table) {
  table.tHead.querySelectorAll("th").forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    button.addEventListener("click", () => sortRows(table, header, column));
    header.append(button);
    header.setAttribute("aria-sort", "none");
  });
}

// A row is shown where it has all words of the filter, also in what opens below it.
function filterRows(input) {
  const table = document.getElementById(input.getAttribute("aria-controls"));
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = [...table.tBodies[0].rows];
  let shown = 0;
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
    shown += !row.hidden;
  }
  const count = words.length ? `${shown} of ${rows.length} rows` : "";
  input.closest(".filter").querySelector("output").textContent = count;
}

// A link to a run shows it whatever the filter, and opens it.
function showTarget() {
  const run = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!run || run.tagName !== "DETAILS") return;
  const input = document.querySelector("input[aria-controls=runs]");
  input.value = "";
  filterRows(input);
  run.open = true;
  run.scrollIntoView();
}

document.querySelectorAll("table.sortable").forEach(makeSortable);
for (const filter of document.querySelectorAll(".filter")) {
  const input = filter.querySelector("input");
  input.addEventListener("input", () => filterRows(input));
  filter.hidden = false;
}
addEventListener("hashchange", showTarget);
showTarget();
