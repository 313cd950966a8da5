"""The ways to cut a training: its global batch, and its model; nothing here needs torch."""

from dataclasses import dataclass, fields, replace
from typing import Any, Self

__all__ = ["Cut", "Layout", "StageChoice"]

StageChoice = bool | tuple[int, ...]
"""Whether stages do something: all, none, or the ones with these numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A way to cut a global batch of any size, and the model; `group` replicas are normalised together.

    Each field is a word of `--layouts`; its default means that nothing is cut so. Stages lie on devices of
    their own unless `mapping` says otherwise, and a device is a process, unless one process plays all.
    """

    replicas: int = 1
    accumulation: int = 1
    group: int = 1
    stages: int = 1
    splits: tuple[str, ...] = ()
    split_by: str = "cost"
    schedule: str = "1f1b"
    mapping: tuple[int, ...] = ()
    recomputation: StageChoice = False
    offloading: StageChoice = False
    processes: int | None = None

    @property
    def parts(self) -> int:
        """Micro-batches of a global batch."""
        return self.replicas * self.accumulation

    @property
    def devices(self) -> int:
        """Devices of one replica."""
        return max(self.mapping, default=self.stages - 1) + 1

    @property
    def ranks(self) -> int:
        """Processes that compute it together."""
        return self.processes or self.replicas * self.devices

    @property
    def is_staged(self) -> bool:
        """Whether the model itself is cut, into stages or into blocks that are recomputed."""
        return self.stages > 1 or self.recomputation is not False

    @property
    def name(self) -> str:
        """As `--layouts` writes it; stages always with their schedule."""
        given = {
            word: getattr(self, word) for word, default in DEFAULTS.items() if getattr(self, word) != default
        }
        if self.stages > 1:
            given["schedule"] = self.schedule
        if self.splits:
            del given["stages"]
        named = [f"{word}={_written(given[word])}" for word in DEFAULTS if word in given]
        return ",".join(named or ["replicas=1"])

    def played(self) -> "Cut":
        """One process in the place of all devices, which takes its replicas' micro-batches one by one.

        Replicas that are normalised together become one micro-batch.
        """
        return replace(
            self,
            replicas=1,
            accumulation=self.parts // self.group,
            group=1,
            processes=1 if self.devices > 1 else None,
        )

    def pipeline_changes(self) -> dict[str, Any]:
        """The fields of a recipe that say how its model is cut."""
        return {
            "stages": self.stages if self.stages > 1 else None,
            "pipeline_splits": self.splits,
            "split_by": self.split_by,
            "device_mapping": self.mapping,
            "pipeline_schedule": self.schedule,
            "recomputation": self.recomputation is True,
            "optimizer_state_offloading": self.offloading is True,
            "stage_options": self._stage_options(),
            "optimise_for": None,
            "profile": None,
        }

    def _stage_options(self) -> tuple[dict[str, Any], ...]:
        recomputed, offloaded = (
            choice if isinstance(choice, tuple) else () for choice in (self.recomputation, self.offloading)
        )
        return tuple(
            {
                "stage": stage,
                **({"recomputation": True} if stage in recomputed else {}),
                **({"offload": True} if stage in offloaded else {}),
            }
            for stage in sorted({*recomputed, *offloaded})
        )


DEFAULTS = {field.name: field.default for field in fields(Cut)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout(Cut):
    """A cut of a certain global batch, into micro-batches of `micro` samples.

    With `stable_norm`, batch norm takes two passes over them whatever the recipe says.
    """

    micro: int
    stable_norm: bool = False

    @classmethod
    def of(cls, cut: Cut, *, global_batch: int) -> Self:
        """The layout that a cut makes of a global batch it divides."""
        return cls(**{word: getattr(cut, word) for word in DEFAULTS}, micro=global_batch // cut.parts)

    @property
    def global_batch(self) -> int:
        """Samples per weight update."""
        return self.micro * self.parts

    @property
    def normalised_set(self) -> int:
        """How many samples batch norm normalises together."""
        return self.micro * self.group

    def in_one_process(self) -> "Layout":
        """One process that normalises the same samples together: its micro-batches are those sets."""
        return Layout(micro=self.normalised_set, accumulation=self.global_batch // self.normalised_set)

    def recipe_changes(self) -> dict[str, Any]:
        """The fields of a recipe that is trained in this layout."""
        return {
            "replicas": self.replicas,
            "micro_batch_size": self.micro,
            "gradient_accumulation_count": self.accumulation,
            "global_batch_size": None,
            "devices": None,
            "dbn_replica_group_size": self.group,
            **self.pipeline_changes(),
            **({"stable_norm": True} if self.stable_norm else {}),
        }

    def to_json(self, *, has_batch_norm: bool) -> dict[str, Any]:
        """Plain values; a model in one piece has no schedule."""
        return {
            "layout": self.name,
            "replicas": self.replicas,
            "accumulation": self.accumulation,
            "micro_batch": self.micro,
            **(self._norm_json() if has_batch_norm else {}),
            "stages": self.stages,
            **(self._stages_json() if self.stages > 1 else {}),
            "schedule": self.schedule if self.stages > 1 else "none",
            "recomputation": _plain(self.recomputation),
            "optimizer_state_offloading": _plain(self.offloading),
            "processes": self.ranks,
        }

    def _norm_json(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "normalised_set": self.normalised_set,
            "stable_norm": self.stable_norm,
        }

    def _stages_json(self) -> dict[str, Any]:
        return {
            "pipeline_splits": list(self.splits),
            "split_by": self.split_by,
            "device_mapping": list(self.mapping or range(self.stages)),
        }


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return "true" if value is True else str(value)


def _plain(choice: StageChoice) -> bool | list[int]:
    return choice if isinstance(choice, bool) else list(choice)
