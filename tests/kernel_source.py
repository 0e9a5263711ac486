"""The source of the kernels of the three cores: where it names what belongs to a feature.

For the files `test_kernel.py` of scheduler, worker and client. What is found is (file, name).
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from weft.protocol.wire.options import OPTIONS

ROOT = Path(__file__).resolve().parents[1]
#: What no name, text and comment of a kernel speaks of.
WORDS = re.compile(
    r"(?<!f)actor|plugin|scatter|relay|task.?stream|output|command|shuffle|coordinat|topic",
    re.IGNORECASE,
)
#: The modules of messages that are about features.
SUBJECTS = ("actors", "coordination", "output", "plugins", "puts", "questions", "times", "viewers")

Found = set[tuple[str, str]]


@cache
def tokens(path: Path) -> list[tokenize.TokenInfo]:
    source = io.StringIO(path.read_text(encoding="utf-8"))
    return list(tokenize.generate_tokens(source.readline))


@cache
def names_in(path: Path) -> set[str]:
    """Return the names that occur in the code of a module."""
    return {token.string for token in tokens(path) if token.type == tokenize.NAME}


def texts_in(path: Path) -> Iterator[str]:
    """Return the comments, texts and parts of texts of a module."""
    others = (tokenize.NAME, tokenize.OP, tokenize.NUMBER)
    return (token.string for token in tokens(path) if token.type not in others)


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def classes_in(paths: Iterable[Path]) -> set[str]:
    nodes = (node for path in paths for node in ast.walk(tree_of(path)))
    return {node.name for node in nodes if isinstance(node, ast.ClassDef)}


def imports_of(path: Path) -> Iterator[str]:
    """Yield the absolute names of all that a module imports, wherever in it."""
    package = ["weft", *path.parent.relative_to(ROOT).parts]
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            parts = [*above, node.module] if node.module else above
            yield from (".".join([*parts, alias.name]) for alias in node.names)


class KernelSource:
    """The modules of a kernel, and those of features.

    Args:
        folder: scheduler, worker or client.
        rooms: those of the core that are of the kernel; so is what lies beside the rooms.
        beside: rooms beside the core that are of features.
    """

    def __init__(self, folder: str, rooms: Iterable[str] = (), beside: Iterable[str] = ()) -> None:
        core = ROOT / folder / "core"
        paths = sorted(core.rglob("*.py"))
        in_kernel = {core, *(core / room for room in rooms)}
        self.folder = folder
        self.modules = [p for p in paths if p.parent in in_kernel and p.stem != "features"]
        self.of_features = [path for path in paths if path not in self.modules]
        self.of_features += [p for room in beside for p in (ROOT / folder / room).rglob("*.py")]

    def named(self, names: set[str]) -> Found:
        """Return where the kernel has one of these names."""
        return {(path.name, name) for path in self.modules for name in names_in(path) & names}

    def imports(self) -> Found:
        """Return what the kernel imports of features, and of all of its folder but the core."""
        inside = f"weft.{self.folder}."
        files = {path.with_suffix("").relative_to(ROOT).parts for path in self.modules}
        folders = {file[:n] for file in files for n in range(1, len(file))}
        found = {(path.name, name) for path in self.modules for name in imports_of(path)}
        found = {(who, name) for who, name in found if name.startswith(inside)}
        assert len(found) > 50
        return {
            (who, name)
            for who, name in found
            if (parts := tuple(name.split(".")[1:])) not in files | folders
            and parts[:-1] not in files
        }

    def classes(self) -> Found:
        """Return which classes of features the kernel names."""
        classes = classes_in(self.of_features)
        assert len(classes) > 10
        return self.named(classes)

    def messages(self, handled: Iterable[type]) -> Found:
        """Return which messages of features the kernel names: handled by them, or about them."""
        folder = ROOT / "protocol" / "wire" / "messages"
        about = classes_in(folder / f"{subject}.py" for subject in SUBJECTS)
        return self.named({kind.__name__ for kind in handled} | about)

    def options(self) -> set[str]:
        """Return the options of tasks that the kernel names."""
        return {name for _, name in self.named({*OPTIONS})}

    def cited(self) -> Found:
        """Return which modules of features the texts of the kernel cite."""
        known = {name for path in self.modules for name in (path.stem, path.parent.name)}
        of_features = {n for path in self.of_features for n in (path.stem, path.parent.name)}
        return {
            (path.name, quoted)
            for path in self.modules
            for text in texts_in(path)
            for quoted in re.findall(r"`([^`\n]+)`", text)
            if quoted.split(".")[0] in of_features - known
        }

    def words(self, more: str = "") -> Found:
        """Return the names and texts of the kernel that speak of a feature.

        Args:
            more: further beginnings of words that texts do not have, as a regular expression.
        """
        of_texts = re.compile(rf"\b({more})", re.IGNORECASE) if more else WORDS
        return {
            (path.name, text)
            for path in self.modules
            for text in (*names_in(path), *texts_in(path))
            if WORDS.search(text)
        } | {
            (path.name, text)
            for path in self.modules
            for text in texts_in(path)
            if of_texts.search(text)
        }
