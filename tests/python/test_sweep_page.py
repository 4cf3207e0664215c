"""The page of a sweep in a browser, opened from its file: it sorts, filters and folds, at a phone's width as well."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from browser import MISSING, Page, browser
from exportguard.sweep import SweepResult
from exportguard.sweep.tables import page

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

RESULTS = [
    SweepResult(model="bert", task="fill-mask", outcome="ok", nodes=58),
    SweepResult(model="vit", task="image-classification", outcome="ok", nodes=147),
    SweepResult(model="llama", task="text-generation", outcome="wrong", nodes=9, reason="x < y & " + "long " * 60),
]
MODELS = (
    "[...document.querySelectorAll('tbody tr')].filter((row) => !row.hidden).map((row) => row.cells[1].textContent)"
)


@pytest.fixture(scope="module", params=[None, 360], ids=["desk", "phone"])
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile"), width=request.param) as one:
        yield one


@pytest.fixture
def shown(opened: Page, tmp_path: Path) -> Page:
    path = tmp_path / "sweep of a night.html"
    path.write_text(page(RESULTS), encoding="utf-8")
    opened.open(path)
    return opened


def column(name: str) -> str:
    names = ("task", "model", "outcome", "nodes")
    return f"thead th:nth-child({names.index(name) + 1}) button"


def test_a_click_on_a_heading_sorts_and_the_next_one_turns_around(shown: Page) -> None:
    assert shown.value(MODELS) == ["llama", "bert", "vit"]
    shown.click(column("model"))
    assert shown.value(MODELS) == ["bert", "llama", "vit"]
    assert shown.value("document.querySelectorAll('th')[1].getAttribute('aria-sort')") == "ascending"
    shown.click(column("model"))
    assert shown.value(MODELS) == ["vit", "llama", "bert"]


def test_numbers_are_sorted_as_numbers(shown: Page) -> None:
    shown.click(column("nodes"))
    assert shown.value(MODELS) == ["llama", "bert", "vit"]  # 9, 58, 147


def test_the_filter_leaves_the_rows_that_have_every_word(shown: Page) -> None:
    shown.type("#filter", "ok FILL")
    assert shown.value(MODELS) == ["bert"]
    assert shown.value("document.querySelector('#shown').textContent") == "1"
    shown.type("#filter", "no such word")
    assert shown.value(MODELS) == []


def test_a_long_reason_is_folded_until_it_is_asked_for(shown: Page) -> None:
    height = "document.querySelector('details').offsetHeight"
    folded = shown.value(height)
    shown.click("details summary")
    assert shown.value("document.querySelector('details').open") is True
    assert shown.value(height) > folded
    assert shown.value("document.querySelector('details').textContent").count("x < y & long") == 2


def test_the_page_is_no_wider_than_its_window(shown: Page) -> None:
    assert shown.value("document.documentElement.scrollWidth <= document.documentElement.clientWidth") is True
