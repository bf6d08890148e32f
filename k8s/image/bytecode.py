"""Bytecode for all modules below a folder, without docstrings: 4 MB in each process that loads them.

    python bytecode.py FOLDER

Each is compiled once, and believed without looking at dates: nothing of an image changes. Assertions and line numbers
stay; what `help()` would say is gone. Classes of ours keep theirs, of which the OpenAPI document is made. Tests of the
standard library, which hold files that are no Python on purpose, are passed over; whatever else fails ends it.
"""  # noqa: INP001 - a script

from __future__ import annotations

import ast
import importlib.util
import marshal
import re
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

OURS = re.compile(r"/site-packages/(?:api|indexer|schemas)/|/site-packages/kvindexer_\w+\.py$")
UNCHECKED_HASH = (1).to_bytes(4, "little")
"""Flags of such a file, by PEP 552."""
PASSED_OVER = re.compile(r"/(?:test|tests|lib2to3|idlelib)/")


def main() -> int:
    """Compile; 1 where a module could not be."""
    found = sorted(path for path in Path(sys.argv[1]).rglob("*.py") if not PASSED_OVER.search(str(path)))
    with ProcessPoolExecutor() as pool:
        failed = [told for told in pool.map(written, found, chunksize=16) if told]
    for told in failed:
        print(told, file=sys.stderr)  # noqa: T201 - as above
    return 1 if failed else 0


def written(path: Path) -> str:
    """Write the bytecode of one module. What was wrong with it; empty where nothing was."""
    warnings.simplefilter("ignore")  # of escapes and the like: not for who builds an image
    source = path.read_bytes()
    try:
        tree = ast.parse(source, str(path))
        cut(tree, keep_classes=bool(OURS.search(str(path))))
        code = compile(tree, str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        return f"{path}: {error}"
    target = Path(importlib.util.cache_from_source(str(path)))
    target.parent.mkdir(exist_ok=True)
    head = importlib.util.MAGIC_NUMBER + UNCHECKED_HASH + importlib.util.source_hash(source)
    target.write_bytes(head + marshal.dumps(code))
    return ""


def cut(tree: ast.Module, *, keep_classes: bool) -> None:
    """Take docstrings away. A class of others keeps a dash: where there is none, a dataclass writes a longer one."""
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if ast.get_docstring(node, clean=False) is None:
            continue
        stated = node.body[0]
        if isinstance(node, ast.ClassDef):
            if not keep_classes:
                node.body[0] = ast.copy_location(ast.Expr(ast.copy_location(ast.Constant("-"), stated)), stated)
        elif len(node.body) > 1:
            del node.body[0]
        else:
            node.body[0] = ast.copy_location(ast.Pass(), stated)


if __name__ == "__main__":
    sys.exit(main())
