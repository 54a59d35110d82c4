"""The report in a browser: nothing fails or is fetched, tables sort and filter, runs open."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from results.test_report import made

from twf.results import figures

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
TIMEOUT = 120  # seconds for a page

pytestmark = [
    pytest.mark.service,
    pytest.mark.skipif(not BROWSER, reason="no Chromium on the PATH"),
]

# Tells what a function returns, or what went wrong before, as the title of the whole page
ASK = """<script>
  const errors = [];
  addEventListener("error", (event) => errors.push(event.message));
  const pause = () => new Promise((done) => setTimeout(done, 100));
  const all = (selector) => [...document.querySelectorAll(selector)];
  addEventListener("load", async () => {
    const told = await (async () => { %s })().catch((error) => ({ error: String(error) }));
    const fetched = performance.getEntriesByType("resource").map((entry) => entry.name);
    top.document.title = JSON.stringify({ ...told, errors, fetched });
  });
</script>"""


def opened(page: str) -> str:
    """A page as it stands once its scripts have run."""
    path = Path("opened.html").resolve()
    path.write_text(page, encoding="utf-8")
    switches = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--dump-dom"]
    switches += [f"--user-data-dir={path.parent / 'profile'}", "--virtual-time-budget=10000"]
    command = [BROWSER, *switches, "--window-size=1280,800", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=True)
    return done.stdout


def told(page: str) -> Any:
    """What the script of `ASK` tells in a page."""
    (title,) = re.findall(r"<title>(\{.*?)</title>", opened(page), re.DOTALL)
    return json.loads(html.unescape(title))


def asking(page: str, script: str) -> str:
    """The page with a script of ours, which its policy would keep from running."""
    open_to_all = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    return open_to_all.replace("<style>", ASK % script + "<style>", 1)


@pytest.fixture
def page(make_plan: Any, recorded: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """The report of a small study: four runs of ER and DER++ that differ, the rest missing."""
    monkeypatch.setattr(figures.kinds, "KINDS", {"accuracy": figures.KINDS["accuracy"]})
    plan = make_plan([0], methods=["er", "derpp", "twf"])
    finished = [name for name, run in plan.runs.items() if run.method != "twf"]
    runs = recorded(plan, dict(zip(finished, (70.0, 9.0, 80.0, 60.0), strict=True)))
    figures.write(runs)
    return made(runs)


def test_tables_sort_and_filter_and_a_link_opens_its_run(page: str):
    script = """
      const header = document.querySelector("#runs thead th:nth-child(4)");
      const sorted = () => {
        header.querySelector("button").click();
        const texts = all("#runs tbody tr").map((row) => row.cells[3].textContent);
        return [header.getAttribute("aria-sort"), ...texts];
      };
      const [up, down] = [sorted(), sorted()];
      const input = document.querySelector("[aria-controls=runs]");
      input.value = "missing twf";
      input.dispatchEvent(new Event("input"));
      const shown = () => all("#runs tbody tr").filter((row) => !row.hidden).length;
      const filtered = [shown(), input.closest(".filter").querySelector("output").textContent];
      const link = document.querySelector(".wide td a");
      const run = document.getElementById(link.hash.slice(1));
      const open = [run.open];
      link.click();
      await pause();
      open.push(run.open);
      return { up, down, filtered, open, shown: shown() };
    """
    numbers = [f"{level:.2f} (0.00)" for level in (9, 60, 70, 80)]
    assert told(asking(page, script)) == {
        "up": ["ascending", *numbers, "—", "—"],  # by number, not by text
        "down": ["descending", *numbers[::-1], "—", "—"],
        "filtered": [2, "2 of 6 rows"],
        "open": [False, True],
        "shown": 6,  # the filter does not hide where a link leads
        "errors": [],
        "fetched": [],
    }


def test_page_does_not_scroll_sideways_on_a_phone(page: str):
    """Its tables do, with their captions and the verdicts on claims in sight."""
    script = """
      for (const details of all("details")) details.open = true;
      const box = document.getElementById("runs").closest(".scroll");
      box.scrollLeft = 200;
      const caption = box.querySelector("caption span").getBoundingClientRect();
      const { clientWidth, scrollWidth } = document.documentElement;
      const verdicts = all(".verdict").map((verdict) => verdict.getBoundingClientRect().right);
      return {
        clientWidth, scrollWidth, scrolled: box.scrollLeft, caption: [caption.left, caption.right],
        verdicts: [Math.min(...verdicts), Math.max(...verdicts)],
      };
    """
    inside = html.escape(asking(page, script))
    frame = f'<iframe style="border: 0" width="375" height="800" srcdoc="{inside}"></iframe>'
    found = told(f"<!doctype html><title>-</title>{frame}")
    width = found["clientWidth"]
    assert 350 < width <= 375 and found["scrollWidth"] <= width
    assert found["scrolled"] == 200
    for left, right in (found["caption"], found["verdicts"]):
        assert 0 <= left <= right <= width


def test_policy_keeps_a_foreign_script_from_running_and_not_the_pages_own(page: str):
    foreign = "<main><script>document.title = 'ran'</script>"
    seen = opened(page.replace("<main>", foreign, 1))
    assert "<title>A small study</title>" in seen
    assert '<th scope="col" aria-sort="none"><button type="button">' in seen
