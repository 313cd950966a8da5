"""A stand-in for huggingface_hub: the folders HF_HUB_CACHE and HUB_STAND_IN are the cache and the hub."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

from huggingface_hub.errors import EntryNotFoundError, HFValidationError, LocalEntryNotFoundError


def try_to_load_from_cache(repo_id: str, filename: str, *, revision: str | None = None) -> str | None:
    if repo_id.count("/") > 1 or repo_id.startswith(("/", ".")):
        raise HFValidationError(repo_id)
    path = _place("HF_HUB_CACHE", repo_id, revision) / filename
    return str(path) if path.is_file() else None


def hf_hub_download(repo_id: str, filename: str, *, revision: str | None = None) -> str:
    if "HUB_STAND_IN" not in os.environ:
        raise LocalEntryNotFoundError(filename)
    there, here = (
        _place(folder, repo_id, revision) / filename for folder in ("HUB_STAND_IN", "HF_HUB_CACHE")
    )
    if not there.is_file():
        raise EntryNotFoundError(filename)
    here.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(there, here)
    return str(here)


def hf_hub_url(repo_id: str, filename: str, *, revision: str | None = None) -> str:
    return str(_place("HUB_STAND_IN", repo_id, revision) / filename)


def get_hf_file_metadata(url: str, *, timeout: float) -> SimpleNamespace:
    assert timeout > 0
    return SimpleNamespace(size=Path(url).stat().st_size)


def _place(folder: str, repo_id: str, revision: str | None) -> Path:
    return Path(os.environ.get(folder, "/nowhere")) / repo_id.replace("/", "--") / (revision or "")
