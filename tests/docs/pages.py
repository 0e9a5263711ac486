"""A page of the documentation as a program: its ```python blocks, at the lines where they stand.

- All blocks of a page are one program, so later ones may use the names of earlier ones. A traceback
  has the page's line numbers.
- A block that cannot run has `<!-- not run: the reason -->` on the line before it.
- A comment behind an expression that begins with a literal states its value, and is
  checked: `len("weft")   # 4; or, if it is printed, what is printed`. It ends at a semicolon, or at
  a comma before a word.
- A table with the columns "name | weft | gives" is run as well: the code of its second column,
  whose last expression has the value of the third. `python -m tests.docs.pages docs/from_ray.md`
  runs the first column, behind the blocks that have `<!-- not run: their side -->`.
"""

from __future__ import annotations

import ast
import io
import re
import shlex
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

_FENCE = re.compile(r"(`{3,})(.*)")
_NOT_RUN = re.compile(r"<!-- not run: \S.* -->")
_LITERAL = re.compile(r"[-\d\[({'\"]|(None|True|False)\b")
_END_OF_CLAIM = re.compile(r";|,(?= [a-z])")
_THEIRS = "<!-- not run: their side -->"
_CELL = re.compile(r"(?<!\\)\|")
_CODE = re.compile(r"`([^`]+)`")
_COMMAND = re.compile(r"`(weft [a-z]+( [^`]*)?)`")

#: The first line of each program; there, pages have their title. `found` may be of any type.
_CHECK = (
    "def _is(found, said): assert found == said, f'the page says {said!r}, but it is {found!r}'"
)


class Page:
    """The program and the commands of a page.

    Attributes:
        name: its path in the checkout.
        program: its Python blocks as one program.
        n_blocks: how many of them there are.
        n_claims: how many of the program's expressions are compared with what the page says.
        commands: each `weft ...` of the page as a list of words, those in running text included.
        n_rows: how many rows of tables are part of the program.

    Args:
        name: its path in the checkout.
        theirs: take the side of the other library, in place of weft's.
    """

    def __init__(self, name: str, *, theirs: bool = False) -> None:
        self.name = name
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith("# "), f"{name} begins with its title"
        program = [""] * len(lines)
        self.commands: list[list[str]] = []
        self.n_blocks = self.n_rows = 0
        fence, is_compared = "", False
        for i, line in enumerate(lines):
            match = _FENCE.fullmatch(line)
            if match and not fence:
                fence, kind = match.groups()
                is_not_run = _NOT_RUN.fullmatch(lines[i - 1]) is not None
                is_run = kind == "python" and (
                    lines[i - 1] == _THEIRS if theirs else not is_not_run
                )
                self.n_blocks += is_run
            elif fence and line == fence:
                fence = ""
            elif fence and is_run:
                program[i] = line
            elif fence and line.startswith("weft "):
                self.commands.append(shlex.split(line, comments=True))
            elif not fence:
                cells = [cell.strip() for cell in _CELL.split(line)[1:-1]]
                is_head = cells[-1:] == ["gives"]
                is_compared = bool(cells) and (is_compared or is_head)
                if is_compared and not is_head and not line.startswith("|-"):
                    program[i] = _row(cells, 0 if theirs else 1)
                    self.n_rows += 1
                else:
                    self.commands += [shlex.split(found[1]) for found in _COMMAND.finditer(line)]
        assert not fence, f"{name}: a block has no end"
        self.program, self.n_claims = with_checks("\n".join(program), name)


def _row(cells: list[str], column: int) -> str:
    """Return the code of a row as a line, with what it gives behind it."""
    code = "; ".join(_CODE.findall(cells[column].replace("\\|", "|")))
    (gives,) = _CODE.findall(cells[-1])
    return f"{code}   # {gives}"


def with_checks(program: str, name: str) -> tuple[str, int]:
    """Return the program with its claims as assertions, on the same lines, and their number."""
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(program).readline)
        if token.type == tokenize.COMMENT
    }
    lines = [line.encode() for line in program.split("\n")]  # columns of `ast` count bytes
    claims: list[tuple[int, int, bytes]] = []
    n_claims = 0
    #: {line: the last expression that ends there}
    stated = {
        node.end_lineno or 0: node
        for node in ast.walk(ast.parse(program, name))
        if isinstance(node, ast.Expr)
    }
    for end, node in stated.items():
        comment = comments.get(end, "")
        if not _LITERAL.match(comment):
            continue
        said = _END_OF_CLAIM.split(comment)[0]
        try:
            value = ast.literal_eval(said)
        except (SyntaxError, ValueError):
            raise AssertionError(f"{name}:{end}: {said!r} is no literal") from None
        found: ast.expr = node.value
        if isinstance(found, ast.Call) and ast.unparse(found.func) == "print":
            (found,) = found.args
        assert found.end_lineno is not None
        assert found.end_col_offset is not None
        claims.append((found.lineno, found.col_offset, b"_is(("))
        claims.append((found.end_lineno, found.end_col_offset, f"), {value!r})".encode()))
        n_claims += 1
    for line, column, text in sorted(claims, reverse=True):
        old = lines[line - 1]
        lines[line - 1] = old[:column] + text + old[column:]
    lines[0] = _CHECK.encode()
    return "\n".join(line.decode() for line in lines), n_claims


if __name__ == "__main__":
    for _name in sys.argv[1:]:
        _page = Page(_name, theirs=True)
        exec(compile(_page.program, _name, "exec"), {"__name__": "__main__"})
        print(f"{_name}: {_page.n_rows} rows")
