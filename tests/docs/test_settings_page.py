from __future__ import annotations

import re

from tests.docs.settings_page import PAGE, page
from weft.protocol.settings.sources import read_settings


def test_the_page_of_settings_is_that_of_the_table():
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.docs.settings_page"


def test_the_file_on_the_page_is_accepted(tmp_path):
    example = re.search(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    path = tmp_path / "weft.toml"
    path.write_text(example[1])
    found = read_settings({"HOME": str(tmp_path), "WEFT_CONFIG": str(path)})
    assert len(found.given) == 6
