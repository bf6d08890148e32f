"""Run by `make wheel` in an environment that holds the built wheel: are the packages ours alone?

Names as short as `api` are taken silently by whoever installs last, and an editable install does not show it.
"""

import sys
import sysconfig
from importlib import import_module, metadata
from pathlib import Path


def main() -> int:
    """Return 0 when each package belongs to kvindexer alone and is loaded from the installed files."""
    owners = metadata.packages_distributions()
    installed_in = Path(sysconfig.get_path("purelib")).resolve()
    wrong = 0
    for package in ("api", "indexer", "schemas", "kvindexer_client", "kvindexer_ray"):
        file = Path(str(import_module(package).__file__)).resolve()
        ours = set(owners.get(package, ())) == {"kvindexer"} and file.is_relative_to(installed_in)
        print(f"{package}: {', '.join(owners.get(package, ['nobody']))}, {file}{'' if ours else '  WRONG'}")
        wrong += not ours
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
