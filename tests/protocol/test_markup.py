from __future__ import annotations

import pytest

from weft.protocol.markup import Markup, element, join


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (element("p", "a < b & c"), "<p>a &lt; b &amp; c</p>"),
        (element("p", element("b", "x"), " y"), "<p><b>x</b> y</p>"),
        (element("td", 5, class_="n"), '<td class="n">5</td>'),
        (element("a", "x", href='"><script>'), '<a href="&quot;&gt;&lt;script&gt;">x</a>'),
        (element("meta", http_equiv="refresh"), '<meta http-equiv="refresh">'),
        (element("input", required=True, checked=False, id=None), "<input required>"),
        (join("<", None, ["a", element("br")], Markup("&nbsp;")), "&lt;a<br>&nbsp;"),
    ],
)
def test_texts_are_escaped_and_elements_are_not(made, text):
    assert made == text
    assert isinstance(made, Markup)


def test_a_text_made_of_markup_is_text_again():
    assert join(f"{element('b', 'x')}<") == "&lt;b&gt;x&lt;/b&gt;&lt;"
