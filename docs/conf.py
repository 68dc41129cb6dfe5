"""The site of lessons and reference: ``sphinx-build -W --keep-going -c docs . site`` in the root of a checkout.

Its pages are the repository's own files, where they are. Lessons are shown as they were saved: nothing is executed.
"""

import dataclasses
import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from docutils import nodes
from latex2mathml.converter import convert
from mdit_py_plugins.anchors.index import slugify
from pygments.lexers.special import TextLexer
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

import minips
from minips.lab.course.lessons import lessons
from minips.stage import Value
from minips.words import groups_of

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LESSONS = "\n".join(f"{one.number} {one.title} <lessons/{one.path.stem}>" for one in lessons())
CONTENTS = f"""
```{{toctree}}
:hidden:
:caption: Guide
docs/training
docs/server
docs/clusters
docs/durability
docs/cost
docs/stages
docs/examples
docs/recipes
docs/play
docs/race
LEADERBOARD
docs/benchmarks
docs/reading
docs/FAQ
```

```{{toctree}}
:hidden:
:caption: Lessons
docs/teachers
docs/syllabi
docs/lesson-plans
docs/own-course
{LESSONS}
lessons/README
lessons/further-a-parameter-server
lessons/further-fewer-bytes
lessons/further-waiting-and-trust
lessons/further-cost
lessons/further-out
lessons/GLOSSARY
```

```{{toctree}}
:hidden:
:caption: Reference
docs/reference
minips/core/PROTOCOL
CHANGELOG
CONTRIBUTING
SECURITY
```
"""

project, release = PROJECT["name"], PROJECT["version"]
author = copyright = PROJECT["authors"][0]["name"]
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "lessons/*", "minips/core/PROTOCOL.md"]
exclude_patterns = [".*", "site", "dist", "build", "**/node_modules"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "off"
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]  # its text says what it is

add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"
default_role = "py:obj"

html_theme = "furo"
html_title = f"{project} {release}"
html_math_renderer = "mathml"
html_static_path = html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = False


def setup(app: Sphinx) -> None:
    """What this site does otherwise than Sphinx."""
    app.connect("source-read", source)
    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-process-docstring", docstring)
    app.connect("missing-reference", elsewhere)
    app.connect("doctree-resolved", open_pages)
    app.connect("build-finished", index)
    app.add_html_math_renderer("mathml", (math, None), (math, None))
    for language in ("arrays", "session", "words", "words3", "weighed", "mermaid"):  # not known to Pygments
        app.add_lexer(language, TextLexer)


def source(app: Sphinx, page: str, text: list[str]) -> None:
    """Contents for the first page; anchors as this site spells them in links that are written for JupyterLab; the texts
    of lessons' pictures where MyST-NB looks for them.
    """
    if page == root_doc:
        text[0] += CONTENTS
    if page == "lessons/README":
        text[0] = re.sub(r"(?<=\.ipynb#)[^)]+", lambda anchor: slugify(unquote(anchor[0]).replace("-", " ")), text[0])
    if app.env.doc2path(page, base=False).suffix == ".ipynb":
        book = json.loads(text[0])
        for cell in book["cells"]:
            for output in cell.get("outputs", []):
                if alt := output.get("metadata", {}).get("image/png", {}).get("alt"):
                    cell["metadata"]["mystnb"] = {"image": {"alt": alt}}
        text[0] = json.dumps(book)


def signature(app: Sphinx, what: str, name: str, value: Any, *_: Any) -> tuple[str, str] | None:
    """None of its own for a value: its fields are in its docstring."""
    return ("", "") if isinstance(value, type) and issubclass(value, Value) else None


def docstring(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """The lines for each field at the end of a value's docstring, as a list for each group of fields."""
    groups = groups_of(value) if isinstance(value, type) and dataclasses.is_dataclass(value) else {}
    title = next(iter(groups), "")
    if f"{title}:" not in lines:
        return
    at = lines.index(f"{title}:")
    said = " ".join(" ".join(lines[at:]).split())
    lines[at:] = []
    fields = {field.name: field for field in dataclasses.fields(value)}
    for title, names in groups.items():
        said = said.removeprefix(f"{title}:")
        lines += [""] if title == "Fields" else ["", f"{title}:", ""]
        for name in names:
            words = fields[name].metadata["help"]
            head, said = said.split(f": {words}", 1)
            lines.append(f"* ``{head.strip()}``: {words}")
        said = said.strip()


def elsewhere(app: Sphinx, env: Any, node: Any, text: nodes.Element) -> nodes.Element | None:
    """The link to a name of `minips` that the reference has under another module's, such as `minips.cost.Star`."""
    value = getattr(minips, node["reftarget"], None)
    if node.get("refdomain") != "py" or not isinstance(value, type):
        return None
    name = f"{value.__module__}.{value.__name__}"
    return env.domains.python_domain.resolve_xref(env, node["refdoc"], app.builder, "obj", name, node, text)


def open_pages(app: Sphinx, tree: nodes.document, page: str) -> None:
    """A link to a page of the repository opens it; Sphinx would download it."""
    for node in list(tree.findall(addnodes.download_reference)):
        if "filename" in node:
            there = f"{'../' * page.count('/')}_downloads/{node['filename']}"
            node.replace_self(nodes.reference("", "", *node.children, refuri=there, internal=True))


def math(writer: HTML5Translator, node: nodes.Element) -> None:
    """MathML, which browsers show without a script from elsewhere."""
    writer.body.append(convert(node.astext(), display="block" if isinstance(node, nodes.math_block) else "inline"))
    raise nodes.SkipNode


def index(app: Sphinx, error: Exception | None) -> None:
    """The first page again, under the name that a folder is opened with."""
    if error is None and app.builder.name == "html":
        shutil.copy(app.outdir / f"{root_doc}.html", app.outdir / "index.html")
