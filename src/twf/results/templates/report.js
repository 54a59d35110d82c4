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

// A link to a row shows it whatever the filter, and opens what belongs to a run.
function showTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const row = target && target.closest("tr");
  if (!row) return;
  if (row.hidden) {
    for (const input of document.querySelectorAll(".filter input")) {
      if (input.getAttribute("aria-controls") !== row.closest("table").id) continue;
      input.value = "";
      filterRows(input);
    }
  }
  const details = target.id.startsWith("run-") && row.querySelector("details");
  if (details) details.open = true;
  for (let at = row.closest("details"); at; at = at.parentElement.closest("details")) at.open = true;
  target.scrollIntoView();
}

// The contents mark the section that one reads: the last whose heading has come up to them.
function markSection() {
  const links = [...document.querySelectorAll("nav a")];
  const top = document.querySelector("nav").getBoundingClientRect().bottom + 40;
  let current = links[0];
  for (const link of links) {
    const heading = document.getElementById(link.hash.slice(1));
    if (heading.getBoundingClientRect().top <= top) current = link;
  }
  for (const link of links) link.toggleAttribute("aria-current", link === current);
}

document.querySelectorAll("table.sortable").forEach(makeSortable);
for (const filter of document.querySelectorAll(".filter")) {
  const input = filter.querySelector("input");
  input.addEventListener("input", () => filterRows(input));
  filter.hidden = false;
}
addEventListener("hashchange", showTarget);
addEventListener("scroll", markSection, { passive: true });
markSection();
showTarget();
