"""What is handed to others: the package, its metadata, the site, and what these say of each other."""

import importlib.metadata
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pages
import pytest
import yaml

import minips as ps
from minips.stage import stage_class

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = SETTINGS["project"]
EXTRAS = PROJECT["optional-dependencies"]
HOME = PROJECT["urls"]["Homepage"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
REFERENCE = pages.text("docs/reference.md")


def test_the_project_has_one_address_and_one_version():
    hook = SETTINGS["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    said = [*PROJECT["urls"].values(), *(one["replacement"] for one in hook["substitutions"])]
    assert [one for one in said if HOME not in one] == []
    assert {"Homepage", "Source", "Documentation", "Changelog", "Issues"} == set(PROJECT["urls"])
    assert (CITATION["repository-code"], CITATION["version"]) == (HOME, PROJECT["version"])
    assert (CITATION["title"], CITATION["license"]) == (PROJECT["name"], PROJECT["license"])
    assert CITATION["authors"] == PROJECT["authors"]


def test_a_package_index_finds_what_the_readme_links_to():
    text = pages.text("README.md")
    for one in SETTINGS["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(one["pattern"], one["replacement"], text)
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert [link for link in links if not link.startswith("https://")] == []
    files = [re.sub(r"#.*", "", link).removeprefix(HOME) for link in links if link.startswith(HOME)]
    assert len(files) > 20
    assert [file for file in files if not (ROOT / re.sub("^/(blob|raw)/main/", "", file)).is_file()] == []


def test_the_classifiers_name_the_pythons_that_it_runs_on():
    named = {line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", line)}
    least, beyond = (int(minor) for minor in re.findall(r"3\.(\d+)", PROJECT["requires-python"]))
    assert named == {f"3.{minor}" for minor in range(least, beyond)}


def test_the_extra_that_a_stage_names_brings_what_it_needs():
    packages = importlib.metadata.packages_distributions()
    classes = [stage_class(kind, name) for kind in ps.kinds() for name in ps.names(kind)]
    needy = [cls for cls in classes if cls.requires and cls.extra]
    assert len(needy) > 10
    for cls in needy:
        brought = " ".join([*EXTRAS[cls.extra], *PROJECT["dependencies"]]).lower().replace("_", "-")
        for module in cls.requires:
            if module in packages:  # elsewhere it is not installed, or comes with Python
                assert packages[module][0].lower().replace("_", "-") in brought, cls
        if cls.extra not in ("ray", "hosts"):  # the first is large, and for clusters, the other for Linux alone
            assert cls.extra in re.findall(r"\w+", EXTRAS["lab"][0]), cls


def test_the_reference_has_every_public_name_once():
    documented = re.findall(r"::\s+minips\.([\w.]+)", REFERENCE)
    assert set(documented) - set(ps.__all__) == {"testing", "cost", "lab"}
    (excluded,) = re.findall(r"minips\.cost\n(?: +:.*\n)* +:exclude-members: (.*)", REFERENCE)
    documented += set(ps.cost.__all__) - set(excluded.split(", "))
    assert [name for name in ps.__all__ if documented.count(name) != 1] == []


def test_the_reference_has_every_name_that_a_course_is_written_with():
    section = REFERENCE.partition("## A course of your own")[2]
    first_column = "".join(re.findall(r"^\| `.*?\|", section, re.MULTILINE))
    assert sorted(re.findall(r"`(\w+)`", first_column)) == sorted(ps.lab.course.__all__)


def test_the_reference_has_every_name_of_every_namespace():
    named = re.search(r"The\s+namespaces are ([^.]+(?:\.\w+[^.]+)*)\.\n", REFERENCE)[1]
    namespaces = re.findall(r"`ps\.(\w+)`", named)
    modules = {name for name in dir(ps) if inspect.ismodule(getattr(ps, name))}
    assert set(namespaces) == modules - {"cost", "datasets", "lab", "testing"}
    told = {*re.findall(r"`(\w+)`", REFERENCE), *re.findall(r"::\s+minips\.(\w+)", REFERENCE), *ps.cost.__all__}
    assert {name for namespace in namespaces for name in dir(getattr(ps, namespace))} <= told


def test_what_the_page_says_of_saving_is_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (saving,) = (block for block in pages.blocks("docs/training.md", "python") if "run.save" in block)
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=60, features=5, classes=3))
    run = ps.train(problem, ps.Config(workers=2, steps=3, transport="inproc"), engine="threads")
    names = {"ps": ps, "run": run, "problem": problem, "config": run.config}
    saving = saving.replace('{"steps": 400}', '{"steps": 5}')
    exec(saving.replace('resume="run.npz"', 'resume="run.npz", engine="threads"'), names)
    assert list(names["labels"]) == list(run.predict(problem.X))
    assert names["longer"].updates == 10
    with np.load("weights.npz") as weights:
        assert {*weights} == {*run.params}
    assert json.loads(json.dumps(run.to_dict()))


@pytest.mark.soak
def test_the_site_is_built_without_a_warning_and_all_its_links_lead_somewhere(tmp_path):
    if absent := [name for name in ("furo", "latex2mathml", "myst_nb", "sphinx") if not importlib.util.find_spec(name)]:
        pytest.skip(f'{", ".join(absent)} is not installed; pip install "minips[docs]" brings it')
    site = tmp_path / "site"
    build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", str(tmp_path / "trees")]
    done = subprocess.run([*build, "-c", "docs", ".", str(site)], cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert (done.returncode, done.stderr) == (0, "")
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    assert {site / "index.html", site / "docs" / "FAQ.html"} <= set(pages)
    sources = {path.stem for path in (ROOT / "lessons").iterdir() if path.suffix in (".ipynb", ".md")}
    assert {path.stem for path in pages if path.parent.name == "lessons"} == sources
    assert [f"{path.name}: {link}" for path, page in pages.items() for link in page.dead(path, pages)] == []
    assert [path.name for path, page in pages.items() if page.downloads] == []  # a replay is opened, not saved
    loaded = {link for page in pages.values() for link in page.loads if urlsplit(link).netloc}
    assert loaded == set()  # nothing from elsewhere: it is read without a network
    assert [f"{path.name}: {picture}" for path, page in pages.items() for picture in page.untold] == []


class Page(HTMLParser):
    """The anchors and the links of a page, what a browser loads for it, and its pictures without a text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors, self.links, self.loads = set[str](), list[str](), list[str]()
        self.downloads = 0
        self.untold = list[str]()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        said = dict(attributes)
        self.anchors |= {said[name] for name in ("id", "name") if said.get(name)}
        self.links += [said[name] for name in ("href", "src") if said.get(name)]
        self.downloads += "download" in said
        self.loads += [said[name] for name in ("href", "src") if said.get(name) and tag != "a"]
        self.untold += [said.get("src", tag)] * (tag == "img" and not said.get("alt"))

    def dead(self, here: Path, pages: dict[Path, "Page"]) -> Iterator[str]:
        for link in self.links:
            parts = urlsplit(link)
            there = (here.parent / unquote(parts.path)).resolve() if parts.path else here
            if not parts.scheme and not parts.netloc:
                anchored = there not in pages or not parts.fragment or unquote(parts.fragment) in pages[there].anchors
                if not there.exists() or not anchored:
                    yield link


def lessons_of_the_checkout() -> list[str]:
    """The notebooks, pages, pictures and recorded values, below the folder of the lessons."""
    listed = subprocess.run(["git", "ls-files", "lessons"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [name.removeprefix("lessons/") for name in listed.splitlines()]
    shown = [path for path in paths if not path.startswith("minips_course/")]
    return [path for path in shown if path.endswith((".ipynb", ".md", ".png", ".svg", ".json"))]


def sweeps_of_the_checkout() -> set[str]:
    """The sweeps that lessons keep, beside their modules."""
    command = ["git", "ls-files", "lessons/minips_course/*/sweeps/*.json"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {name.removeprefix("lessons/") for name in listed.splitlines()}


def files_of_views(names):
    """The JavaScript and the style sheets of the views among the names of an archive's files."""
    return {name.rpartition("/")[2] for name in names if "minips/lab/views/" in name and name.endswith((".js", ".css"))}


@pytest.mark.soak
def test_the_wheel_and_the_source_archive_have_the_views(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (wheel,), (source,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    here = files_of_views(path.as_posix() for path in (ROOT / "minips" / "lab" / "views").iterdir())
    assert {"common.js", "common.css", "race.js"} <= here
    with zipfile.ZipFile(wheel) as package, tarfile.open(source) as archive:
        assert files_of_views(package.namelist()) == here
        assert files_of_views(archive.getnames()) == here
        assert [name for name in archive.getnames() if "node_modules" in name] == []


@pytest.mark.soak
def test_the_wheel_alone_runs_the_demo_in_an_empty_folder(tmp_path):
    wheels, place, empty = (tmp_path / name for name in ("wheels", "place", "empty"))
    empty.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MINIPS"))}

    def ran(*command: object, **where: Path) -> str:
        line = [str(one) for one in command]
        done = subprocess.run(line, **where, env=environment, capture_output=True, text=True, timeout=280)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    ran(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", wheels, cwd=ROOT)
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as package:
        names = package.namelist()
        assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"minips", "minips_course"}
        assert "minips_course/wait/checks.py" in names
        assert [name for name in names if name.endswith("cases.py")] == []
        assert {name for name in names if "/sweeps/" in name} == sweeps_of_the_checkout() != set()
        kept = {f"minips_course/notebooks/{name}" for name in lessons_of_the_checkout()}
        assert {name for name in names if name.startswith("minips_course/notebooks/")} == kept
        assert "minips/lab/course/settings/labconfig/default_setting_overrides.json" in package.namelist()
        (metadata,) = (name for name in package.namelist() if name.endswith(".dist-info/METADATA"))
        readme = package.read(metadata).decode()
        for picture in ("lessons/workbench.png", "docs/replay.svg"):
            assert f"]({HOME}/raw/main/{picture})" in readme
    ran(sys.executable, "-m", "venv", place)
    python = place / ("Scripts" if os.name == "nt" else "bin") / "python"
    ran(python, "-m", "pip", "install", "--quiet", wheel)
    count = sum(name.endswith(".ipynb") for name in kept)
    found = "from minips.lab.course import EXERCISES, lessons; print(len(lessons.lessons()), 'wait.2' in EXERCISES)"
    assert ran(python, "-c", found, cwd=empty) == f"{count} True\n"
    table = ran(python, "-m", "minips", "demo", "--json", tmp_path / "rows.json", cwd=empty)
    assert [*empty.iterdir()] == []
    by_name = {row["name"]: row for row in json.loads((tmp_path / "rows.json").read_text())}
    names = ["BSP", "SSP(2)", "ASP", "exact", "float16", "uniform, 8 bits", "topk 1 %, feedback"]
    assert list(by_name) == names
    exact, topk = by_name["exact"], by_name["topk 1 %, feedback"]
    assert by_name["BSP"]["accuracy"] >= 0.93
    assert exact["accuracy"] >= 0.93
    assert topk["bytes_sent"] <= 0.05 * exact["bytes_sent"]
    assert topk["accuracy"] >= exact["accuracy"] - 0.02
    assert {row["updates"] for row in by_name.values()} == {320, 400}
    assert all(row["predicted_s_per_step"] > 0 for row in by_name.values())
    for row in by_name.values():
        assert ps.Config.from_dict(row["config"]).workers == 4
    assert all(name in table for name in [*names, "updates"])
    busy = [row["note"] for row in by_name.values() if row["note"]]
    assert [note for note in busy if not re.search("on a quiet machine.$", note)] == []
    said = " ".join(table.split())
    assert "were off by at most" in said or len(busy) == len(names)
    assert ("Run it again on a quiet machine." in said) == bool(busy)
