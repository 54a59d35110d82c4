"""The report in a browser: nothing fails or is fetched, and it fits a phone."""

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

from twf.files import runs_page

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
def page(make_plan: Any, recorded: Any) -> str:
    """The report of a small study: four runs of ER and DER++ that differ, the rest missing."""
    plan = make_plan([0], methods=["er", "derpp", "twf"])
    finished = [name for name, run in plan.runs.items() if run.method != "twf"]
    return made(recorded(plan, dict(zip(finished, (70.0, 9.0, 80.0, 60.0), strict=True))))


@pytest.mark.parametrize("of_runs", [False, True])
def test_page_does_not_scroll_sideways_on_a_phone(page: str, of_runs: bool):
    """Its tables do, and the message and its figure are on the first screen."""
    script = """
      for (const details of all("details")) details.open = true;
      const { clientWidth, scrollWidth } = document.documentElement;
      const figure = document.querySelector("figure");
      const top = figure ? figure.getBoundingClientRect().top : 0;
      return { clientWidth, scrollWidth, top };
    """
    shown = runs_page("small").read_text() if of_runs else page
    inside = html.escape(asking(shown, script))
    frame = f'<iframe style="border: 0" width="375" height="800" srcdoc="{inside}"></iframe>'
    found = told(f"<!doctype html><title>-</title>{frame}")
    width = found["clientWidth"]
    assert 350 < width <= 375 and found["scrollWidth"] <= width
    assert found["top"] < 600
    assert (found["errors"], found["fetched"]) == ([], [])


def test_policy_keeps_a_foreign_script_from_running(page: str):
    foreign = "<body><script>document.title = 'ran'</script>"
    assert "<title>A small study</title>" in opened(page.replace("<body>", foreign, 1))
