"""The picture of a schedule."""

from drivetrain.plan.render_stages import draw_timeline


def _draw(name: str, *, width: int = 63, micro_batches: int = 2) -> list[str]:
    return draw_timeline(
        name,
        micro_batches=micro_batches,
        device_of=[0, 1],
        flops=[5, 5],
        recomputes=[False, False],
        width=width,
    )


def test_one_row_per_device_and_one_word_per_action() -> None:
    # Seven forward times of 10 columns would be 70: two stages and two micro-batches take 9 of them.
    first, second = _draw("gpipe", width=3 + 9 * 4)
    assert first == "0: F0--F1--............B0------B1------"[: len(first)]
    assert second.startswith("1: ....F0--F1--B0------B1------")


def test_split_backward_passes_are_shown_in_their_parts() -> None:
    assert {"F", "I", "W"} <= set("".join(_draw("zero-bubble")))


def test_of_many_micro_batches_the_first_are_shown() -> None:
    title, *rows = _draw("1f1b", micro_batches=100)
    assert title == "the first 4 of 100 micro-batches:"
    assert len(rows) == 2
    assert max(map(len, rows)) <= 63


def test_a_stage_that_costs_nothing_is_still_seen() -> None:
    rows = draw_timeline(
        "1f1b", micro_batches=2, device_of=[0, 1], flops=[10**9, 0], recomputes=[True, False], width=40
    )
    assert "B" in rows[1]
