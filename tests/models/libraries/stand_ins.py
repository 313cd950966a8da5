"""Small stand-ins for timm, torchvision, transformers and segmentation_models_pytorch.

The packages under `packages/` have the functions, names and shapes that Drivetrain uses of the real ones,
with models of a few hundred weights. The project's tests run without the real libraries installed, and
torchvision does not import beside every build of torch. `use_stand_ins` puts them on the path of this process
and of the processes that it starts.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PACKAGES = Path(__file__).parent / "packages"
NAMES = tuple(sorted(folder.name for folder in PACKAGES.iterdir() if folder.is_dir()))


def use_stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the stand-ins before installed libraries, for one test."""
    forget(monkeypatch)
    monkeypatch.syspath_prepend(PACKAGES)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(PACKAGES), *sys.path]))


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the libraries be imported anew, and what was remembered of them be asked again."""
    from drivetrain.models.libraries import timm, torchvision

    for name in [name for name in sys.modules if name.partition(".")[0] in NAMES]:
        monkeypatch.delitem(sys.modules, name)
    for remembered in (timm._names, torchvision._names):
        remembered.cache_clear()


def hide_library(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """Makes a package look as if it were not installed."""
    monkeypatch.setattr(
        "drivetrain.catalogue.libraries.find_spec",
        lambda name: None if name == package else find_spec(name),
    )
