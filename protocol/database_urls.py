"""URLs of databases, and how they are shown: without the passwords in them. Pure."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from .errors import ConfigError

#: The schema in which the tables are, unless the URL names another one.
SCHEMA: Final = "weft"
_SCHEMES: Final = ("postgresql", "postgres")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
#: With another number of slashes it would be the path of a file, and the path is shown.
_NO_PATH: Final = re.compile(r"postgres(ql)?:", re.IGNORECASE)
#: A password may have any character that should be a %-code, so this takes what it can.
_OF_USER: Final = re.compile(r"[^:]*:/*[^:]*:(.*)@", re.DOTALL)
#: As the driver reads it: a value ends at an `&` only.
_PARAMETER: Final = re.compile(r"[?&]([^=&]*)=(?=([^&]*))")
_OF_SECRETS: Final = re.compile("password|secret|scram", re.IGNORECASE)
_SCHEMA_OF: Final = re.compile(r"([?&])schema=([^&#]*)&?")
_NAME: Final = re.compile(r"(?!pg_)(?!public$)[a-z_][a-z0-9_]{0,62}")
_HIDDEN: Final = "***"


def is_url(place: str) -> bool:
    """Return whether a text is a URL, and no path."""
    return (_SCHEME.match(place) or _NO_PATH.match(place)) is not None


def check_url(url: str, where: str) -> None:
    """Check that a URL is of a database in which weft has tables.

    Raises:
        ConfigError: it is not; the text begins with `where`, and has no password.
    """
    found = _SCHEME.match(url)
    scheme = "" if found is None else found[1].lower()
    if scheme not in _SCHEMES:
        text = f"{shown(url)!r} is neither a path nor postgresql://USER@HOST/DATABASE"
        raise ConfigError(text, where)
    try:
        schema_of(url)
    except ConfigError as error:
        raise ConfigError(error.text, where) from None


def schema_of(url: str) -> tuple[str, str]:
    """Return the schema that a URL names, and the URL without it.

    Raises:
        ConfigError: it is no plain name.
    """
    found = _SCHEMA_OF.search(url)
    if found is None:
        return SCHEMA, url
    name = unquote(found[2])
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is no schema for a journal: write small letters, digits and _, as in "
            "?schema=team_a; public and pg_* are others'"
        )
    return name, (url[: found.start()] + found[1] + url[found.end() :]).rstrip("?&")


def shown(url: str) -> str:
    """Return a URL, or a path, as it may be shown to anybody."""
    if not is_url(url):
        return url
    secrets = [
        found.span(2) for found in _PARAMETER.finditer(url) if _OF_SECRETS.search(unquote(found[1]))
    ]
    if of_user := _OF_USER.match(url):
        secrets.append(of_user.span(1))
    text, last = "", 0
    for start, end in sorted(secrets):
        if start >= last:
            text += url[last:start] + _HIDDEN
        last = max(last, end)
    return text + url[last:]
