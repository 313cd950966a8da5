"""Measures the links between ranks of this machine, for the times that `drivetrain plan` predicts."""

from drivetrain.core.errors import DrivetrainError
from drivetrain.doctor.finding import Finding, note, ok

__all__ = ["check_links"]

_LONGEST_REASON = 200


def check_links() -> list[Finding]:
    """Measures each kind of link and keeps it in the user's cache folder."""
    from drivetrain.planner.devices.links import keep_measured_link, machine_name
    from drivetrain.planner.devices.measure_links import measure_link, measured_kinds

    findings = []
    for kind in measured_kinds():
        try:
            link = measure_link(kind)
        except (DrivetrainError, OSError) as error:
            why = " ".join(str(error).split())[:_LONGEST_REASON]
            findings.append(note("links", f"the link between two {kind} ranks cannot be measured ({why})."))
            continue
        keep_measured_link(link, kind=kind, machine=machine_name(kind))
        speed, latency = link.bytes_per_s / 1e9, link.latency_s * 1e6
        findings.append(
            ok(
                "links",
                f"two {kind} ranks exchange {speed:.3g} GB/s, and a message takes at least {latency:.3g} "
                "microseconds; drivetrain plan uses this from now on.",
            )
        )
    return findings
