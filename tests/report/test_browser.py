"""A page in a real browser: its policy lets its own style in, and would tell of a changed one."""

import re
import shutil
import subprocess

import pytest
from tests.report.support import local, reported, shadow, when

from needle_router.report.page import page

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--virtual-time-budget=1000")
PAGE = page(reported(local(), shadow(tools_called=("<script>",))), when=when)

pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs a Chromium")


def seen(tmp_path, text):
    """What the browser made of a page, and what it said on its console."""
    file = tmp_path / "page.html"
    file.write_text(text)
    command = [BROWSER, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    return done.stdout, re.findall(r":CONSOLE:\d+\] (.*)", done.stderr)


def test_a_browser_shows_the_page_without_a_complaint(tmp_path):
    shown, console = seen(tmp_path, PAGE)
    assert "&lt;script&gt;" in shown
    assert console == []


def test_a_browser_takes_no_style_but_the_pages_own(tmp_path):
    _, console = seen(tmp_path, PAGE.replace("<style>", "<style>/* changed */"))
    assert len(console) == 1
    assert "violates the following Content Security Policy directive" in console[0]
