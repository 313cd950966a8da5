"""Where a library publishes the weights of a model: the place in a local cache, and how they get there."""

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlparse
from urllib.request import Request, urlopen

import torch

from drivetrain.models.weights.parts import is_index, parts_of

__all__ = ["HubFile", "Origin", "UrlFile"]

# A server that does not tell the size at once is not waited for.
_SIZE_TIMEOUT_S = 5.0
# The part of a file name that is the beginning of its checksum, as torch.hub reads it.
_CHECKSUM = re.compile(r"-([a-f0-9]*)\.")


class Origin(Protocol):
    """A published file of weights; its text says where it is published."""

    def cached(self) -> Path | None:
        """The file in the library's local cache; never asks the network."""
        ...

    def size_bytes(self) -> int | None:
        """The size of the file to download, if the server tells it."""
        ...

    def download(self) -> None:
        """Lets the library download the file into its cache."""
        ...

    @property
    def how_to_place(self) -> str:
        """What puts the file into the cache without this machine's network."""
        ...


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file in a repository of the Hugging Face hub: the first of `names` that the repository has."""

    repository: str
    names: tuple[str, ...]
    revision: str | None = None

    def __str__(self) -> str:
        return f"{self.repository} of the Hugging Face hub"

    def cached(self) -> Path | None:
        """The file in the hub's local cache (HF_HOME), with all its parts."""
        from huggingface_hub import try_to_load_from_cache

        for name in self.names:
            found = try_to_load_from_cache(self.repository, name, revision=self.revision)
            if isinstance(found, str) and _is_whole(Path(found)):
                return Path(found)
        return None

    def size_bytes(self) -> int | None:
        """The size of the file that the repository has; None for a file in parts."""
        from huggingface_hub import get_hf_file_metadata, hf_hub_url

        for name in (name for name in self.names if not is_index(name)):
            with suppress(Exception):
                address = hf_hub_url(self.repository, name, revision=self.revision)
                size: int | None = get_hf_file_metadata(address, timeout=_SIZE_TIMEOUT_S).size
                return size
        return None

    def download(self) -> None:
        """Downloads the file, and with a list of parts those too."""
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

        for name in self.names:
            try:
                path = Path(hf_hub_download(self.repository, name, revision=self.revision))
            except LocalEntryNotFoundError:
                raise
            except EntryNotFoundError:
                continue
            for part in parts_of(path):
                hf_hub_download(self.repository, part.name, revision=self.revision)
            return
        raise FileNotFoundError(f"the repository has none of {', '.join(self.names)}")

    @property
    def how_to_place(self) -> str:
        """The command that fills the cache on a machine with a network."""
        return f"run `hf download {self.repository}` where there is a network, and copy that cache (HF_HOME)"


def _is_whole(path: Path) -> bool:
    try:
        return all(part.is_file() for part in parts_of(path))
    except ValueError:
        # The error is that of reading the file.
        return True


@dataclass(frozen=True, slots=True)
class UrlFile:
    """A file at an address, kept in torch.hub's folder; some names contain the beginning of a checksum."""

    address: str
    has_checksum: bool = False

    def __str__(self) -> str:
        return self.address

    @property
    def _place(self) -> Path:
        return Path(torch.hub.get_dir()) / "checkpoints" / Path(urlparse(self.address).path).name

    def cached(self) -> Path | None:
        """The file in torch.hub's folder (TORCH_HOME)."""
        return self._place if self._place.is_file() else None

    def size_bytes(self) -> int | None:
        """The size that the server tells."""
        with suppress(Exception):
            request = Request(self.address, method="HEAD")
            with urlopen(request, timeout=_SIZE_TIMEOUT_S) as answer:
                return int(answer.headers["Content-Length"])
        return None

    def download(self) -> None:
        """Downloads the file and compares its checksum."""
        self._place.parent.mkdir(parents=True, exist_ok=True)
        found = _CHECKSUM.search(self._place.name) if self.has_checksum else None
        torch.hub.download_url_to_file(
            self.address, str(self._place), hash_prefix=found[1] if found else None, progress=False
        )

    @property
    def how_to_place(self) -> str:
        """Where the file belongs."""
        return f"save it as {self._place}"
