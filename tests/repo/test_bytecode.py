"""What becomes of a module in an image: the same, without what it says about itself."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path
from typing import Any, Final

import pytest

CUT: Final[Any] = runpy.run_path(str(Path(__file__).parents[2] / "k8s" / "image" / "bytecode.py"))["cut"]
SOURCE: Final = '''
"""The module."""
from __future__ import annotations

class Kept:
    """The class."""
    value = 0
    """The field, which is no docstring, and costs nothing."""

    def method(self):
        """The method."""
        assert self.value

def empty():
    """Nothing else."""

async def plain(): return "no docstring"
'''


def _run(*, keep_classes: bool) -> dict[str, Any]:
    tree = ast.parse(SOURCE)
    CUT(tree, keep_classes=keep_classes)
    space: dict[str, Any] = {"__name__": "it"}
    exec(compile(tree, "it", "exec", dont_inherit=True), space)  # noqa: S102  of the text above
    return space


@pytest.mark.parametrize(("keep_classes", "of_class"), [(True, "The class."), (False, "-")])
def test_docstrings_go_and_nothing_else(keep_classes: bool, of_class: str) -> None:
    """Functions still are, imports from the future come first, assertions hold, lines are where they were."""
    space = _run(keep_classes=keep_classes)

    assert of_class == space["Kept"].__doc__
    assert [None] * 3 == [each.__doc__ for each in (space["Kept"].method, space["empty"], space["plain"])]
    assert "__doc__" not in space
    assert SOURCE[: SOURCE.index("def empty")].count("\n") + 1 == space["empty"].__code__.co_firstlineno
    with pytest.raises(AssertionError):
        space["Kept"]().method()
