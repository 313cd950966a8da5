"""What timm keeps about its weights."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class PretrainedCfg:
    """The entry of one set of weights."""

    input_size: tuple[int, int, int]
    mean: tuple[float, ...] = (0.5, 0.4, 0.3)
    std: tuple[float, ...] = (0.25, 0.2, 0.1)
    num_classes: int = 1000
    fixed_input_size: bool = False
    min_input_size: tuple[int, int, int] | None = None
    license: str | None = "apache-2.0"
    hf_hub_id: str | None = None
    hf_hub_filename: str | None = None
    url: str = ""


_ENTRIES = {
    "resnet4": PretrainedCfg(input_size=(3, 24, 24), hf_hub_id="timm/resnet4.a1_in1k"),
    "resnet8": PretrainedCfg(input_size=(3, 24, 24), min_input_size=(3, 8, 8)),
    "vit_small": PretrainedCfg(
        input_size=(3, 16, 16), fixed_input_size=True, url="https://weights.example/vit_small.pth"
    ),
}


def is_model(name: str) -> bool:
    return name in _ENTRIES


def get_pretrained_cfg(name: str) -> PretrainedCfg:
    return _ENTRIES[name.partition(".")[0]]


def model_entrypoint(name: str) -> Callable[[], None]:
    def entry() -> None:
        """A small network."""

    return entry
