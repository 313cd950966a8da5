"""Checks the vector units of the processor, and whether 16-bit matrix products run on it."""

from drivetrain.devices.cpu_half import (
    HALF_NAMES,
    ISA_VARIABLE,
    SAFE_ISA,
    HalfSupport,
    Verdict,
    chosen_isa,
    half_support,
)
from drivetrain.devices.processor import read_processor
from drivetrain.doctor.finding import Finding, note, ok

__all__ = ["check_half_types", "check_processor"]

_UNITS = {
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx512_bf16": "AVX-512 bfloat16",
    "avx512_fp16": "AVX-512 float16",
    "amx_bf16": "AMX bfloat16",
    "amx_fp16": "AMX float16",
    "asimd": "NEON",
    "sve": "SVE",
    "bf16": "bfloat16",
}


def check_processor() -> Finding:
    """The vector units that the processor advertises; `check_half_types` tests whether they work."""
    processor = read_processor()
    units = [name for feature, name in _UNITS.items() if feature in processor.features]
    return ok("processor", f"{processor.name}; advertises {', '.join(units) or 'no known vector units'}.")


def check_half_types() -> list[Finding]:
    """Whether 16-bit products run on the CPU, tried in child processes because they may crash."""
    return [_explained(half_support(kind)) for kind in HALF_NAMES]


def _explained(support: HalfSupport) -> Finding:
    topic, kind = f"CPU {support.kind}", support.kind
    if support.as_is == Verdict.WORKS:
        return ok(
            topic, f"--precision 16.32 --half-type {kind} runs on this CPU{_units(kind)}{_by_choice()}."
        )
    if support.must_be_held:
        return ok(
            topic,
            f"the processor advertises matrix units (AMX) but forbids their use: {kind} products crash a "
            f"process. Drivetrain sets {ISA_VARIABLE}={SAFE_ISA} itself when {kind} is requested, so the "
            "products run without these units.",
        )
    return note(topic, f"{_why_not(support)}; --precision 32.32, the default on a CPU, is not affected.")


def _units(kind: str) -> str:
    features = read_processor().features
    short = {"bfloat16": "bf16", "float16": "fp16"}[kind]
    if f"amx_{short}" in features:
        return ", matrix units (AMX) included"
    if f"avx512_{short}" in features or (short == "bf16" and "bf16" in features):
        return " with native instructions"
    return ", but without native instructions: it saves memory, but is not faster"


def _by_choice() -> str:
    chosen = chosen_isa()
    return "" if chosen is None else f" (oneDNN is limited to {chosen} by {ISA_VARIABLE})"


def _why_not(support: HalfSupport) -> str:
    if support.as_is == Verdict.DIES:
        chosen = chosen_isa()
        if chosen is not None:
            return f"{support.kind} products crash under {ISA_VARIABLE}={chosen}; try {SAFE_ISA} instead"
        return f"{support.kind} products crash with every allowed instruction set, so Drivetrain refuses them"
    if support.as_is == Verdict.REFUSED:
        return f"torch has no {support.kind} products on this CPU, so Drivetrain refuses them"
    return f"{support.kind} products could not be tested, so Drivetrain refuses them"
