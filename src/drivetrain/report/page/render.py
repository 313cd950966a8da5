"""From a page's contents to one HTML document."""

import html
from base64 import b64encode
from hashlib import sha256

from drivetrain.report.contents import PageContents
from drivetrain.report.page.assets import page_script, page_style, uplot_licence
from drivetrain.report.page.embedding import embedded_json

__all__ = ["render_page"]

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<link rel="icon" href="data:,">
<!-- Charts are drawn by uPlot:
{licence}
-->
<style>{style}</style>
</head>
<body>
<div id="page"></div>
<noscript><p class="alone">{title}: this page is drawn by its own script; allow it to run.</p></noscript>
<script type="application/json" id="contents">{contents}</script>
<script>{script}</script>
{client}</body>
</html>
"""


def render_page(contents: PageContents, *, client: str | None = None) -> str:
    """The page as one file; `client` is a script of the live server, which may then talk to it."""
    scripts = [page_script(), *([] if client is None else [client])]
    return _PAGE.format(
        policy=html.escape(_policy(scripts, style=page_style(), is_live=client is not None)),
        title=html.escape(_writable(contents["title"])),
        licence=uplot_licence().strip(),
        style=page_style(),
        contents=embedded_json(contents),
        script=scripts[0],
        client="" if client is None else f"<script>{client}</script>\n",
    )


def _policy(scripts: list[str], *, style: str, is_live: bool) -> str:
    """Only these very scripts and styles, and pictures that lie in the page; nothing from the network."""
    rules = {
        "default-src": "'none'",
        "script-src": " ".join(_source(script) for script in scripts),
        "style-src": _source(style),
        "img-src": "data:",
        "connect-src": "'self'" if is_live else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _writable(text: str) -> str:
    """The text without the halves of letters that file names may hold."""
    return text.encode(errors="replace").decode()


def _source(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
