"""How the lines of a log are written: as text, or as JSON for programs that collect them."""

from __future__ import annotations

import json
import logging
import time
from typing import Final

TEXT: Final = "%(asctime)s %(name)s %(levelname)s: %(message)s"


class JsonLines(logging.Formatter):
    """Writes each record as one JSON object in one line.

    Its fields are `time` (RFC 3339, UTC, milliseconds), `level` (lower case), `logger`, `process`
    (its id), `thread` (its name), `message`, and if there is one, `code`
    (docs/reference/log_codes.md), and `exception` with the traceback.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record, without its end."""
        instant = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, str | int] = {
            "time": f"{instant}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process or 0,
            "thread": record.threadName or "",
            "message": record.getMessage(),
        }
        if record.levelno >= logging.WARNING and (code := getattr(record, "code", "")):
            line["code"] = str(code)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        elif record.exc_text:
            line["exception"] = record.exc_text
        return json.dumps(line, ensure_ascii=False)


#: {value of --log-format: what writes the lines}
FORMATTERS: Final[dict[str, logging.Formatter]] = {
    "text": logging.Formatter(TEXT),
    "json": JsonLines(),
}


def log_to_stderr(level: str | int, format: str = "text") -> None:
    """Write log records of this level and above to standard error.

    Nothing is changed if this process has set up its log already.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(FORMATTERS[format])
    logging.basicConfig(level=level, handlers=[handler])
