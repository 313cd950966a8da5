"""The page in a real browser: every chart is drawn, its controls work, and nothing in a name runs."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drivetrain.report.collect.pages import contents_of
from drivetrain.report.contents import PageContents
from drivetrain.report.page.render import render_page
from tests.report.collect.fabricated import classifier as on_disk
from tests.report.collect.fabricated import pipelined_segmentation
from tests.report.page.browsers import OpenPage, open_pages
from tests.report.page.made_contents import (
    VALIDATIONS,
    classifier,
    compared,
    confusion,
    cross_validation,
    page_of,
    segmentation,
)

pytestmark = pytest.mark.browser

WIDTHS = (390, 768, 1440)
LENGTHS = (300, 1000, 3000, 10_000)
PAGES: dict[str, Callable[[], PageContents]] = {
    "segmentation": lambda: page_of(segmentation()),
    "classifier": lambda: page_of(classifier()),
    "cross-validation": lambda: page_of(cross_validation()),
    "compared": lambda: compared(LENGTHS),
}
NASTY = "\"><img src=x onerror=window.ran=1></script><script>window.ran=1</script>{{7*7}}'&"


@pytest.fixture(scope="module")
def opener() -> Iterator[OpenPage]:
    with open_pages() as open_page:
        yield open_page


@pytest.fixture
def show(opener: OpenPage, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens a page; at the end of the test its browser has complained about nothing."""
    complaints: list[str] = []

    def shown(contents: PageContents, *, width: int = 1440, scheme: str = "light") -> Any:
        path = tmp_path / "report.html"
        path.write_text(render_page(contents), encoding="utf-8")
        return opener(path.as_uri(), width=width, scheme=scheme, complaints=complaints)

    yield shown
    assert complaints == []


def _points(page: Any) -> dict[str, dict[str, int]]:
    """The number of points of each line of each chart."""
    charts = page.evaluate("drivetrainPage.charts()")
    return {chart["id"]: {line["label"]: line["points"] for line in chart["lines"]} for chart in charts}


def _range(page: Any, chart: int = 0) -> tuple[float, float]:
    first, last = page.evaluate(f"drivetrainPage.charts()[{chart}].range")
    return first, last


def _drag(page: Any, start: float, end: float) -> None:
    """Drags across the first chart, between two shares of its width."""
    page.locator(".u-over").first.scroll_into_view_if_needed()
    box = page.locator(".u-over").first.bounding_box()
    page.mouse.move(box["x"] + start * box["width"], box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], box["y"] + 60, steps=5)
    page.mouse.up()


def _colours(page: Any, chart: int = 0) -> int:
    """How many colours a canvas shows: one that was never drawn on has a single one."""
    number: int = page.evaluate(
        """(chart) => {
            const canvas = document.querySelectorAll(".plot canvas")[chart];
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            return new Set(new Uint32Array(data.buffer)).size;
        }""",
        chart,
    )
    return number


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_every_page_is_drawn_within_its_width(
    show: Callable[..., Any], name: str, width: int, scheme: str
) -> None:
    page = show(PAGES[name](), width=width, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    charts = page.locator(".plot canvas").count()
    assert charts == len(_points(page)) > 0
    assert all(_colours(page, chart) > 10 for chart in range(charts))
    assert page.locator("section:visible h2").count() >= 6


def test_each_line_has_all_its_points(show: Callable[..., Any]) -> None:
    points = _points(show(PAGES["classifier"]()))
    both = {"training": 300, "validation": VALIDATIONS}
    assert points == {
        "loss": both,
        "accuracy": both,
        "learning_rate": {"learning rate": 300},
        "throughput": {"throughput": 300},
    }
    points = _points(show(PAGES["cross-validation"]()))
    assert points == {"loss": {f"fold {number}": 100 for number in range(5)}}


def test_runs_lie_over_each_other_and_can_be_left_out(show: Callable[..., Any]) -> None:
    page = show(PAGES["compared"]())
    names = [f"run-{place}-of-{length}" for place, length in enumerate(LENGTHS)]
    assert _points(page)["learning_rate"] == dict(zip(names, LENGTHS, strict=True))
    assert _points(page)["loss"][f"{names[3]} · training"] == 10_000
    page.get_by_label(names[3], exact=True).uncheck()
    assert list(_points(page)["learning_rate"]) == names[:3]
    assert _range(page)[1] == LENGTHS[2]
    page.get_by_label("Run", exact=True).select_option(label=names[2])
    assert names[2] in page.locator("#command code").inner_text()
    rows = page.locator("#comparison tbody th").all_inner_texts()
    assert rows == [*names, "--learning-rate", "--model"]


def test_dragging_zooms_all_charts_and_a_double_click_goes_back(show: Callable[..., Any]) -> None:
    page = show(PAGES["classifier"]())
    assert _range(page) == (1, 300)
    _drag(page, 0.25, 0.5)
    first, last = _range(page)
    assert 60 < first < 95
    assert 130 < last < 170
    assert _range(page, 3) == (first, last)
    page.locator(".u-over").nth(1).dblclick()
    assert _range(page) == (1, 300)
    _drag(page, 0.25, 0.5)
    page.get_by_role("button", name="Show all updates").click()
    assert _range(page) == (1, 300)


def test_a_chart_is_read_and_zoomed_with_keys(show: Callable[..., Any]) -> None:
    page = show(PAGES["classifier"]())
    plot = page.get_by_role("img", name="Loss over the updates")
    assert "training: first" in plot.get_attribute("aria-label")
    plot.focus()
    page.keyboard.press("ArrowRight")
    assert "update 1" in page.locator(".tip").inner_text()
    page.keyboard.press("+")
    assert _range(page)[1] < 300
    page.keyboard.press("0")
    assert _range(page) == (1, 300)


def test_values_appear_under_the_pointer(show: Callable[..., Any]) -> None:
    page = show(PAGES["classifier"]())
    assert page.locator(".tip").is_hidden()
    page.locator(".u-over").first.hover()
    words = page.locator(".tip").inner_text()
    assert words.startswith("update 15")
    assert "training" in words
    assert "validation" in words


def test_the_log_scale_and_the_smoothing(show: Callable[..., Any]) -> None:
    page = show(PAGES["classifier"]())
    plain = _colours(page)
    page.locator("[data-chart=loss] input[type=checkbox]").check()
    assert page.evaluate("drivetrainPage.charts().map(chart => chart.isLog)") == [True, False, False, False]
    page.get_by_label("Smoothing").fill("0.9")
    assert page.locator(".slider output").first.inner_text() == "0.90"
    assert _points(page)["loss"] == {"training": 300, "validation": VALIDATIONS}
    assert _colours(page) != plain


def test_a_chart_has_its_values_as_a_table(show: Callable[..., Any]) -> None:
    page = show(PAGES["compared"]())
    figure = page.locator("[data-chart=learning_rate]")
    figure.get_by_text("Values as a table").click()
    figure.locator("tbody tr").first.wait_for()
    assert figure.locator("tbody tr").count() == 200
    assert "200 of 10,000 updates." in figure.inner_text()


def test_a_cell_of_the_confusion_matrix_shows_its_examples(show: Callable[..., Any]) -> None:
    contents = page_of(classifier())
    matrix = contents["runs"][0]["confusion"]
    page = show(contents)
    row, column = map(int, list(matrix["examples"])[-1].split(","))
    page.get_by_role("button", name=f"true {row}, predicted {column}:").click()
    panel = page.locator(".examples-panel")
    assert f"of {row}, predicted as {column}" in panel.inner_text()
    assert panel.locator("img").count() == len(matrix["examples"][f"{row},{column}"])
    page.keyboard.press("ArrowUp")
    assert f"of {row - 1}" in panel.locator("h3").inner_text()
    assert page.locator(".confusion button[aria-pressed=true]").count() == 1
    assert page.locator(".confusion button").count() == 100


def test_many_classes_become_a_list_of_mistakes(show: Callable[..., Any]) -> None:
    run = classifier()
    run["confusion"] = confusion([f"class {number}" for number in range(70)])
    page = show(page_of(run))
    assert page.locator(".confusion").count() == 0
    assert page.locator("#confusion tbody tr").count() == 40


def test_masks_follow_their_sliders(show: Callable[..., Any]) -> None:
    page = show(PAGES["segmentation"]())
    clips = "[...document.querySelectorAll('.mask:first-child .layer')].map(one => one.style.clipPath)"
    slider = page.get_by_role("slider", name="image-0.png: image, truth, prediction")
    slider.fill("0")
    assert page.evaluate(clips) == ["inset(0px 100% 0px 0%)", "inset(0px 100% 0px 0%)"]
    slider.focus()
    page.keyboard.press("End")
    assert page.evaluate(clips) == ["inset(0px 0% 0px 100%)", "inset(0px 0%)"]
    assert slider.get_attribute("aria-valuetext") == "prediction"
    page.get_by_role("button", name="truth", exact=True).click()
    assert page.evaluate(clips) == ["inset(0px 0%)", "inset(0px 100% 0px 0%)"]
    page.get_by_label("Opacity of masks").fill("0.25")
    assert page.evaluate("document.querySelector('.layer').style.opacity") == "0.25"


def test_the_timeline_has_every_action_on_one_scale(show: Callable[..., Any]) -> None:
    contents = page_of(segmentation())
    predicted, measured = contents["runs"][0]["timeline"]
    page = show(contents)
    actions = [len(row["actions"]) for one in (predicted, measured) for row in one["rows"]]
    assert page.locator(".lanes rect").count() == sum(actions)
    widths = [
        page.locator(f"rect.{source}.k-forward").first.bounding_box()["width"]
        for source in ("predicted", "measured")
    ]
    assert widths[1] / widths[0] == pytest.approx(1.3, rel=0.01)
    page.locator("rect.measured.k-backward").first.hover()
    assert "backward on replica 0, device 0" in page.locator(".tip").inner_text()
    page.get_by_label("row below row").check()
    assert page.locator(".lane-names div").all_inner_texts()[:3] == [
        "device 0 · predicted",
        "replica 0, device 0 · measured",
        "replica 1, device 0 · measured",
    ]
    assert page.locator(".lanes rect").count() == sum(actions)
    before = page.locator("rect.predicted.k-forward").first.bounding_box()["width"]
    page.get_by_role("slider", name="Zoom").fill("4")
    zoomed = page.locator("rect.predicted.k-forward").first.bounding_box()["width"]
    assert zoomed == pytest.approx(4 * before, rel=0.02)


def test_the_recipe_is_filtered(show: Callable[..., Any]) -> None:
    page = show(PAGES["classifier"]())
    options = page.locator("#recipe tbody tr:not(.group) th")
    assert options.all_inner_texts() == ["--model", "--learning-rate", "--num-epochs"]
    page.get_by_label("Filter the options").fill("range test")
    assert options.all_inner_texts() == ["--learning-rate"]
    page.get_by_label("Filter the options").fill("")
    page.get_by_label("with defaults").check()
    assert options.count() == 45


def test_parts_without_contents_are_left_out(show: Callable[..., Any]) -> None:
    run = classifier()
    del run["confusion"], run["worst"], run["time"]
    run["plan"], run["curves"] = [], []
    page = show(page_of(run))
    ids = page.evaluate("[...document.querySelectorAll('section')].map(one => one.id)")
    assert ids == ["overview", "recipe", "environment", "command"]


def test_light_and_dark_by_the_button(show: Callable[..., Any]) -> None:
    page = show(PAGES["classifier"](), scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(19, 22, 26)"
    page.get_by_role("button", name="Switch between light and dark").click()
    assert page.evaluate(ground) == "rgb(247, 247, 245)"
    assert _colours(page) > 10


def test_new_contents_leave_zoom_scroll_and_open_parts(show: Callable[..., Any]) -> None:
    page = show(page_of(classifier(updates=300)))
    page.get_by_label("Smoothing").fill("0.5")
    page.locator("[data-chart=accuracy] summary").click()
    page.locator("[data-chart=accuracy] tbody tr").first.wait_for()
    page.get_by_label("Filter the options").fill("learning")
    page.get_by_role("button", name="true 3, predicted 3:").click()
    _drag(page, 0.25, 0.5)
    zoomed = _range(page)
    page.evaluate("window.scrollTo(0, 700)")
    run = classifier(updates=400)
    run["headline"][0] = ("best accuracy", "0.99")
    page.evaluate("(contents) => drivetrainPage.update(contents)", page_of(run))
    assert _points(page)["loss"]["training"] == 400
    assert _range(page) == zoomed
    assert page.evaluate("window.scrollY") == 700
    assert page.locator("[data-chart=accuracy] details").get_attribute("open") is not None
    assert page.locator("[data-chart=accuracy] tbody tr").count() == 200
    assert page.get_by_label("Filter the options").input_value() == "learning"
    assert (
        page.locator(".confusion button[aria-pressed=true]").get_attribute("aria-label").startswith("true 3")
    )
    assert page.locator(".tiles dd").first.inner_text() == "0.99"
    page.get_by_role("button", name="Show all updates").click()
    assert _range(page) == (1, 400)


def test_a_run_that_appears_joins_the_charts(show: Callable[..., Any]) -> None:
    page = show(page_of(classifier(name="first")))
    page.evaluate(
        "(contents) => drivetrainPage.update(contents)",
        page_of(classifier(name="first"), classifier(name="second", seed=1)),
    )
    assert list(_points(page)["learning_rate"]) == ["first", "second"]
    assert page.locator("#comparison").is_visible()


def test_it_prints_in_light_colours(show: Callable[..., Any]) -> None:
    page = show(PAGES["compared"](), scheme="dark")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(247, 247, 245)"
    assert (
        page.evaluate("Math.max(...[...document.querySelectorAll('.uplot')].map(one => one.offsetWidth))")
        == 330
    )
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(19, 22, 26)"


def test_two_fingers_zoom_and_one_moves(show: Callable[..., Any]) -> None:
    page = show(page_of(classifier()), width=390)
    chart = page.locator(".chart .u-over").first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    device = page.context.new_cdp_session(page)

    def touch(kind: str, *shares: float) -> None:
        points = [
            {"x": box["x"] + share * box["width"], "y": box["y"] + 60, "id": number}
            for number, share in enumerate(shares)
        ]
        device.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    def shown() -> list[float]:
        return list(page.evaluate("drivetrainPage.charts()[0].range"))

    first, last = shown()
    touch("touchStart", 0.4, 0.6)
    touch("touchMove", 0.3, 0.7)
    touch("touchMove", 0.2, 0.8)
    touch("touchEnd")
    near, far = shown()
    # What was under two fingers is now under them three times as far apart.
    assert near == pytest.approx(first + (last - first) / 3, rel=0.02)
    assert far == pytest.approx(first + (last - first) * 2 / 3, rel=0.02)
    touch("touchStart", 0.8)
    touch("touchMove", 0.5)
    touch("touchMove", 0.3)
    touch("touchEnd")
    moved = shown()
    assert moved[1] - moved[0] == pytest.approx(far - near)
    assert moved[0] == pytest.approx(near + (far - near) / 2, rel=0.02)
    page.get_by_role("button", name="Show all updates").click()
    assert shown() == [first, last]


def test_the_headline_of_a_run_that_goes_on_is_one_line(show: Callable[..., Any]) -> None:
    contents = page_of(classifier())
    headline = contents["runs"][0]["headline"]
    contents["runs"][0]["headline"] = [("update", "100,004 of 200,000"), *headline[1:]]
    for width in WIDTHS:
        page = show(contents, width=width)
        first = page.locator(".tiles dd").first.bounding_box()
        assert first["height"] < 50


@pytest.mark.parametrize("width", WIDTHS)
def test_the_pages_of_runs_on_disk(show: Callable[..., Any], tmp_path: Path, width: int) -> None:
    """What `drivetrain report` collects is what the script expects."""
    runs = [on_disk(tmp_path / "classifier"), pipelined_segmentation(tmp_path / "segmentation")]
    for paths in ([runs[0]], [runs[1]], runs):
        page = show(contents_of(paths), width=width)
        assert _points(page)["loss"]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)")


def test_nothing_in_a_name_runs(show: Callable[..., Any]) -> None:
    """Names of runs, classes, files, options and tables that are HTML and scripts."""
    contents = _made_nasty(page_of(classifier(), segmentation(), cross_validation()))
    page = show(contents)
    for place in range(3):
        page.get_by_label("Run", exact=True).select_option(index=place)
        for summary in page.locator("summary").all():
            summary.click()
        page.locator(".u-over").first.hover()
    page.wait_for_timeout(200)
    assert page.evaluate("window.ran") is None
    assert page.locator("script").count() == 2
    assert page.locator("img[src=x]").count() == 0
    assert page.locator("h1").inner_text() == NASTY


def test_the_policy_stops_what_would_run_all_the_same(opener: OpenPage, tmp_path: Path) -> None:
    """The negative control: markup that does get into the page does nothing, and is complained about."""
    path = tmp_path / "report.html"
    text = render_page(page_of(classifier()))
    path.write_text(text.replace("<noscript>", "<script>window.ran = 1</script><noscript>"), encoding="utf-8")
    complaints: list[str] = []
    page = opener(path.as_uri(), width=1440, scheme="light", complaints=complaints)
    assert page.evaluate("window.ran") is None
    assert len(complaints) == 1
    assert "Content Security Policy" in complaints[0]


_WORDS_OF_THE_PAGE = frozenset(
    ["training", "cross-validation", "running", "finished", "stopped", "predicted", "measured"]
)


def _made_nasty(value: Any, name: str = "") -> Any:
    """Every text that a run may choose gets markup in it."""
    if isinstance(value, dict):
        is_free = name in ("scores",)
        return {
            (f"{NASTY}{key}" if is_free else key): _made_nasty(inner, key) for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_made_nasty(inner, name) for inner in value]
    if not isinstance(value, str) or value in _WORDS_OF_THE_PAGE or value.startswith("data:image/"):
        return value
    return NASTY if name == "title" else f"{NASTY}{value}"
