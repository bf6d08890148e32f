"""Print what an engine wheel needs on this machine: `python tests/engine/requirements.py WHEEL`.

Everything its metadata asks for without an extra, where the markers hold, but no release of torch: run.sh chooses that
one, and the audio and image companions of torch are never imported for a text model.
"""

import sys
from email.parser import BytesParser
from pathlib import PurePosixPath
from zipfile import ZipFile

from packaging.requirements import Requirement

LEFT_OUT = {"torch", "torchaudio", "torchvision", "torchcodec"}


def requirements(wheel: str) -> list[str]:
    """Requirement lines for pip, without markers."""
    with ZipFile(wheel) as archive:
        (metadata,) = [name for name in archive.namelist() if PurePosixPath(name).match("*.dist-info/METADATA")]
        lines = BytesParser().parsebytes(archive.read(metadata)).get_all("Requires-Dist", [])
    wanted = []
    for requirement in map(Requirement, lines):
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if applies and requirement.name not in LEFT_OUT:
            requirement.marker = None
            wanted.append(str(requirement))
    return wanted


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1])))
