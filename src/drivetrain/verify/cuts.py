"""Layouts: how a global batch is split over replicas and micro-batches, and a model into pipeline stages.

Imports no torch, so that options can be parsed quickly.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, Self

__all__ = ["Cut", "Layout", "StageChoice"]

StageChoice = bool | tuple[int, ...]
"""Which stages something applies to: all (True), none (False), or the stages with these numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A layout for a global batch of any size; batch norm normalises over `group` replicas together.

    Each field is a setting of `--layouts`, and its default means "not split". Each stage has a device of its
    own unless `mapping` says otherwise. Each device is a process, unless `processes` is 1: then one process
    runs all stages.
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
        """The number of micro-batches in a global batch."""
        return self.replicas * self.accumulation

    @property
    def devices(self) -> int:
        """The number of devices of one replica."""
        return max(self.mapping, default=self.stages - 1) + 1

    @property
    def ranks(self) -> int:
        """The number of processes that compute the layout together."""
        return self.processes or self.replicas * self.devices

    @property
    def is_staged(self) -> bool:
        """Whether the model is split, into pipeline stages or into recomputed blocks."""
        return self.stages > 1 or self.recomputation is not False

    @property
    def name(self) -> str:
        """The layout as `--layouts` spells it; stages are always named with their schedule."""
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
        """The same layout in one process, which runs the micro-batches of all replicas one after another.

        Replicas that batch norm normalises together are merged into one micro-batch.
        """
        return replace(
            self,
            replicas=1,
            accumulation=self.parts // self.group,
            group=1,
            processes=1 if self.devices > 1 else None,
        )

    def pipeline_changes(self) -> dict[str, Any]:
        """The recipe fields that split the model into stages."""
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
    """A layout of one particular global batch, with micro-batches of `micro` samples.

    `stable_norm` turns on two-pass batch-norm statistics, whatever the recipe says.
    """

    micro: int
    stable_norm: bool = False

    @classmethod
    def of(cls, cut: Cut, *, global_batch: int) -> Self:
        """The layout of a global batch that `cut` divides evenly."""
        return cls(**{word: getattr(cut, word) for word in DEFAULTS}, micro=global_batch // cut.parts)

    @property
    def global_batch(self) -> int:
        """Samples per weight update."""
        return self.micro * self.parts

    @property
    def normalised_set(self) -> int:
        """The number of samples that batch norm normalises together."""
        return self.micro * self.group

    def in_one_process(self) -> "Layout":
        """The equivalent of one process: each micro-batch is a set that batch norm normalises together."""
        return Layout(micro=self.normalised_set, accumulation=self.global_batch // self.normalised_set)

    def recipe_changes(self) -> dict[str, Any]:
        """The recipe fields that select this layout."""
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
        """Plain values for `--json`; the schedule of a model without stages is "none"."""
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
