"""The page on control flow says what the tests show."""

from __future__ import annotations

import re

from control_flow_document import PATH, document


def _without_lines(text: str) -> str:
    return re.sub(
        r"(_(?:then|else|rest|body|test|fail)_|line[= ])\d+", r"\1N", text
    )  # these move with the tests' files


def test_the_page_on_control_flow_is_up_to_date() -> None:
    assert _without_lines(PATH.read_text(encoding="utf-8")) == _without_lines(document())
