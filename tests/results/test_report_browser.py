"""The report in a browser: nothing fails or is fetched, tables sort and filter, runs open."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import until
from results.test_report import made

from twf.files import report_file
from twf.results import figures

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
TIMEOUT = 60  # seconds for one answer of the browser

pytestmark = [
    pytest.mark.service,
    pytest.mark.skipif(not BROWSER, reason="no Chromium on the PATH"),
]


class Browser:
    """A headless Chromium, spoken to over its DevTools pipe: JSON messages that end in NUL."""

    def __init__(self, profile: Path) -> None:
        read_theirs, self._out = os.pipe()
        self._in, write_theirs = os.pipe()
        # Chromium reads descriptor 3 and writes 4. Not sh: it may know none beyond 9.
        script = f'exec "$@" 3<&{read_theirs} 4>&{write_theirs}'
        switches = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        switches += ["--no-first-run", f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", BROWSER, *switches],
            pass_fds=(read_theirs, write_theirs),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_theirs)
        os.close(write_theirs)
        os.set_blocking(self._in, False)
        self._buffer = b""
        self._count = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Send a command; return its result. Events that come before it are kept."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": arguments}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        end = time.monotonic() + TIMEOUT
        while b"\0" not in self._buffer:
            assert time.monotonic() < end, "the browser does not answer"
            try:
                self._buffer += os.read(self._in, 1 << 20)
            except BlockingIOError:
                time.sleep(0.01)
        message, self._buffer = self._buffer.split(b"\0", 1)
        return dict(json.loads(message))

    def open(self, path: Path, width: int = 1280) -> None:
        """Load a page from disk, on a screen of some width."""
        screen = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **screen)
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def said(self) -> list[dict[str, Any]]:
        """What it said of the page that is open: errors, the console's lines, dialogs."""
        told = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        told += ("Page.javascriptDialogOpening",)
        return [event for event in self.events if event.get("method") in told]

    def requests(self) -> list[str]:
        """The addresses that it asked for, for this page."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def close(self) -> None:
        """End the browser."""
        self._session = None
        self.call("Browser.close")
        self._process.wait(TIMEOUT)
        os.close(self._in)
        os.close(self._out)


@pytest.fixture
def page(make_plan: Any, recorded: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The report of a small study: four runs of ER and DER++ that differ, the rest missing."""
    monkeypatch.setattr(figures.kinds, "KINDS", {"accuracy": figures.KINDS["accuracy"]})
    plan = make_plan([0], methods=["er", "derpp", "twf"])
    epochs = [{"phase": 0, "epoch": i, "seconds": 1.0, "loss": 1.0 / (1 + i)} for i in range(5)]
    history = [epoch | {"terms": {"stream": epoch["loss"]}} for epoch in epochs]
    finished = [name for name, run in plan.runs.items() if run.method != "twf"]
    levels = dict(zip(finished, (70.0, 9.0, 80.0, 60.0), strict=True))
    runs = recorded(plan, {n: {"level": f, "history": history} for n, f in levels.items()})
    figures.write(plan)
    made(runs)
    return report_file(plan.study)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    """A browser of the test's own."""
    opened = Browser(tmp_path / "profile")
    yield opened
    opened.close()


FAA = """[...document.querySelectorAll('#cells tbody tr')].map(row => row.cells[5].textContent)"""
HEADER = "document.querySelector('#cells thead th:nth-child(6)')"


def wait_for(browser: Browser, question: str) -> None:
    until(lambda: browser.ask(question), question)


def test_report_works_in_a_browser(page: Path, browser: Browser):
    browser.open(page)
    folded = "document.getElementById('cells').closest('details').open"
    assert browser.ask(folded) is False
    browser.ask("document.querySelector('.wide td a').click()")
    wait_for(browser, folded)
    here = "document.querySelector('nav [aria-current]').hash"
    wait_for(browser, f"{here} === '#cells-section'")

    browser.ask(f"{HEADER}.querySelector('button').click()")
    values = browser.ask(FAA)
    numbers = [float(value) for value in values if value != "—"]
    assert numbers == sorted(numbers)
    assert numbers[0] == 9.0  # by number, not by text
    assert values[-1] == "—"
    assert browser.ask(f"{HEADER}.getAttribute('aria-sort')") == "ascending"
    browser.ask(f"{HEADER}.querySelector('button').click()")
    assert browser.ask(f"{HEADER}.getAttribute('aria-sort')") == "descending"
    assert browser.ask(FAA)[0] == "80.00"

    browser.ask(
        "(() => { const input = document.querySelector('[aria-controls=runs]');"
        "input.value = 'missing twf'; input.dispatchEvent(new Event('input')); })()"
    )
    shown = "[...document.querySelectorAll('#runs tbody tr')].filter(row => !row.hidden).length"
    assert browser.ask(shown) == 2
    assert browser.ask("document.querySelector('#runs-section ~ .filter output').textContent") == (
        "2 of 6 rows"
    )

    details = "document.getElementById('run-split-cifar10.er.500.s0').querySelector('details').open"
    assert browser.ask(details) is False
    browser.ask("document.querySelector('#cells a[href=\"#run-split-cifar10.er.500.s0\"]').click()")
    wait_for(browser, details)
    wait_for(browser, f"{here} === '#runs-section'")
    assert browser.ask(shown) == 6  # the filter does not hide where a link leads

    assert browser.said() == []
    assert browser.requests() == [page.resolve().as_uri()]


def test_page_does_not_scroll_sideways_on_a_phone(page: Path, browser: Browser):
    browser.open(page, width=375)
    browser.ask("document.querySelectorAll('details').forEach(details => details.open = true)")
    root = "document.documentElement"
    assert browser.ask(f"{root}.clientWidth") == 375
    assert browser.ask(f"{root}.scrollWidth <= {root}.clientWidth")
    wide = "[...document.querySelectorAll('.scroll')].some(e => e.scrollWidth > e.clientWidth)"
    assert browser.ask(wide)  # its tables do
    # the verdict on each claim is on the screen, and a caption stays there while its table scrolls
    right = "[...document.querySelectorAll('.verdict')].map(e => e.getBoundingClientRect().right)"
    assert browser.ask(f"Math.min(...{right})") > 0 and browser.ask(f"Math.max(...{right})") < 375
    scrolled = "document.getElementById('runs').closest('.scroll')"
    browser.ask(f"{scrolled}.scrollLeft = 200")
    assert browser.ask(f"{scrolled}.scrollLeft") == 200
    box = "document.querySelector('#runs caption span').getBoundingClientRect()"
    assert browser.ask(f"{box}.left") >= 0 and browser.ask(f"{box}.right") <= 375


def test_policy_keeps_a_foreign_script_from_running(page: Path, browser: Browser):
    text = page.read_text().replace("<main>", "<main><script>document.title = 'ran'</script>", 1)
    page.write_text(text)
    browser.open(page)
    assert browser.ask("document.title") == "A small study"
    assert any("Content Security Policy" in json.dumps(event) for event in browser.events)
