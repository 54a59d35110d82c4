"""The report in a browser: nothing fails or is fetched, and it fits a phone."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from results.test_report import made

from twf.files import runs_page

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)

pytestmark = [
    pytest.mark.service,
    pytest.mark.skipif(not BROWSER, reason="no Chromium on the PATH"),
]

# Tells the measures of the page in its frame, once loaded, as the title of the whole page
ASK = """<script>
  const errors = [];
  addEventListener("error", (event) => errors.push(event.message));
  addEventListener("load", () => {
    for (const details of document.querySelectorAll("details")) details.open = true;
    const { clientWidth, scrollWidth } = document.documentElement;
    const figure = document.querySelector("figure");
    const figureTop = figure ? figure.getBoundingClientRect().top : null;
    const fetched = performance.getEntriesByType("resource").map((entry) => entry.name);
    top.document.title = JSON.stringify({ clientWidth, scrollWidth, figureTop, errors, fetched });
  });
</script>"""


def opened(page: str) -> str:
    """A page as it stands once its scripts have run."""
    path = Path("opened.html").resolve()
    path.write_text(page, encoding="utf-8")
    switches = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--dump-dom"]
    switches += [f"--user-data-dir={path.parent / 'profile'}", "--virtual-time-budget=10000"]
    command = [BROWSER, *switches, "--window-size=1280,800", path.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


@pytest.fixture
def page(make_plan: Any, recorded: Any) -> str:
    """The report of a small study: four runs of ER and DER++ that differ, the rest missing."""
    plan = make_plan([0], methods=["er", "derpp", "twf"])
    finished = [name for name, run in plan.runs.items() if run.method != "twf"]
    return made(recorded(plan, dict(zip(finished, (70.0, 9.0, 80.0, 60.0), strict=True))))


@pytest.mark.parametrize("of_runs", [False, True])
def test_page_does_not_scroll_sideways_on_a_phone(page: str, of_runs: bool):
    """Its tables do, and the message and its figure are on the first screen."""
    shown = runs_page("small").read_text() if of_runs else page
    unguarded = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", shown)
    inside = html.escape(unguarded.replace("<style>", ASK + "<style>", 1))
    frame = f'<iframe style="border: 0" width="375" height="800" srcdoc="{inside}"></iframe>'
    whole = opened(f"<!doctype html><title>-</title>{frame}")
    (title,) = re.findall(r"<title>(\{.*?)</title>", whole, re.DOTALL)
    found = json.loads(html.unescape(title))
    width = found["clientWidth"]
    assert 350 < width <= 375 and found["scrollWidth"] <= width
    assert found["figureTop"] is None if of_runs else 0 < found["figureTop"] < 600
    assert (found["errors"], found["fetched"]) == ([], [])


def test_policy_keeps_a_foreign_script_from_running(page: str):
    foreign = "<body><script>document.title = 'ran'</script>"
    assert "<title>A small study</title>" in opened(page.replace("<body>", foreign, 1))
