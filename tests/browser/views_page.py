"""Views in a page: opened from a file, looked at at every width and in both themes."""

from collections.abc import Iterator
from pathlib import Path

from node_tools import TOOLS, needs_tools
from playwright.sync_api import Page

from minips.lab.views import View

WIDTHS = (1024, 1280, 1440, 1920)
THEMES = ("light", "dark")
FAULTS = """inside => {
    const all = [document.documentElement, ...document.querySelectorAll(`:is(${inside}), :is(${inside}) *`)]
    const apart = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) <= 1
        || Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) <= 3
    const outside = (a, b) => a.left < b.left - 1 || a.right > b.right + 1
        || a.top < b.top - 1 || a.bottom > b.bottom + 1
    const fault = one => {
        if (one.matches('option') || one.closest('.minips-told, .minips-bare .widget-label-basic > span')) return ''
        if (one instanceof HTMLElement)
            return one.clientWidth && one.scrollWidth > one.clientWidth ? 'scrolls sideways' : ''
        if (!(one instanceof SVGTextElement) || !one.textContent || !one.getClientRects().length) return ''
        const box = one.getBoundingClientRect()
        if (outside(box, one.ownerSVGElement.getBoundingClientRect())) return 'is clipped'
        if (box.height < 11) return 'is tiny'
        return [...one.ownerSVGElement.querySelectorAll('text')].every(other =>
            !other.textContent || !(one.compareDocumentPosition(other) & Node.DOCUMENT_POSITION_FOLLOWING)
            || apart(box, other.getBoundingClientRect())) ? '' : 'overlaps'
    }
    return all.flatMap(one => fault(one) ? [fault(one) + ': ' + one.outerHTML.slice(0, 200)] : [])
}"""
"""The boxes that scroll sideways and the texts of pictures that are clipped, tiny or over one another."""

DRAWN = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""Comes to an end when the page has drawn what its new size asked for."""


def open_view(page: Page, view: View, folder: Path) -> None:
    """Open a view's page from a file."""
    (folder / f"{view.name}.html").write_text(view.html(), encoding="utf-8")
    page.goto((folder / f"{view.name}.html").as_uri())
    page.wait_for_selector(".minips-view")


def looks(page: Page) -> Iterator[tuple[str, int]]:
    """Each theme and width, once the page has it."""
    for theme in THEMES:
        page.emulate_media(color_scheme=theme)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.evaluate(DRAWN)
            yield theme, width


def faults_here(page: Page, inside: str = ".minips-view") -> list[str]:
    """The boxes that scroll sideways and the texts that are clipped, tiny or over one another, in the page as it is."""
    found: list[str] = page.evaluate(FAULTS, inside)
    return found


def faults(page: Page) -> list[str]:
    """Everything that a newcomer would dislike at every width, in both themes; empty for a good view."""
    return [f"{theme}, {width}: {one}" for theme, width in looks(page) for one in faults_here(page)]


def inaccessible(page: Page, inside: str = ".minips-view") -> list[str]:
    """Everything that axe-core finds serious or critical, in the page's present state."""
    needs_tools()
    page.evaluate((TOOLS / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("inside => axe.run(inside)", inside)["violations"]
    return [
        f"{one['id']}: {node['html'][:200]}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


def screenshots(page: Page, folder: Path, name: str) -> None:
    """Write a picture of the page for each theme and width."""
    for theme, width in looks(page):
        page.screenshot(path=folder / f"{name}-{theme}-{width}.png", full_page=True)
