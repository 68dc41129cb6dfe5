"""The README and the pages around it: short enough, their links lead somewhere, their code and commands run, and a new
user's questions are answered at most two clicks from the README.
"""

import os
import re
import shlex
import subprocess
import sys

import hosts
import pages
import pytest
from test_byhand import Started

import benchmarks.__main__ as benches
from minips import cli
from minips.results.run import Run

MOST_BYTES = 12_000
"""Of the README."""
LANGUAGES = {"python", "sh", "text", "toml", "pycon", "mermaid", "{eval-rst}"}
"""Of blocks: `test_recipes` runs those of pycon, `test_cluster` prints what is text, `test_states` draws those of
mermaid, Sphinx reads the last."""
LONG = {"docs/training.md", "docs/clusters.md", "docs/cost.md"}
"""Pages whose code takes more than some seconds."""
FILES = {"docs/own-course.md"}
"""Pages whose code is a package's files, which `test_teachers` builds."""
SHORTER = {
    "docs/cost.md": """
import importlib
from functools import partial
import minips as ps

importlib.import_module("minips.cost.calibrate").ATTEMPTS = 1
few = [ps.Config(workers=2), ps.Config(workers=2, servers=2)]
ps.cost.tune = partial(ps.cost.tune, candidates=few, tried=1)
ps.cost.codec_map = partial(ps.cost.codec_map, {"exact": ps.Codec()}, [1_000, 10_000], [1e8, 1e9], start=few[0])
"""
}
"""What runs before a page's code, so that minutes become seconds: fewer candidates, and a smaller map."""
HELD = {
    "test_distribution.py::test_the_wheel_alone_runs_the_demo_in_an_empty_folder": (
        "git clone",
        "python3 -m venv .venv && ",
    ),
    "test_cli.py::test_lab_copies_the_lessons_and_opens_the_start_page_one_server_for_a_folder": (
        ".venv/bin/minips lab",
    ),
    "test_ray.py::test_the_commands_of_the_page_train_on_a_cluster": (
        "ray start",
        "minips train --engine ray:address=",
    ),
    "test_tls.py::test_the_certificate_that_the_page_makes": ("openssl req",),
    "test_hosts.py::test_the_commands_of_the_page_serve_and_work_on_three_hosts": (
        "minips serve --workers 2 --bind tcp://10.0.0.1:7071",
        "scp",
        "minips work --connect tcp://10.0.0.1:7071",
    ),
    "test_pages.py::test_a_server_and_its_workers_are_started_by_hand": (
        "minips serve --problem mine:make",
        "minips work --problem mine:make",
        "minips status",
    ),
    "test_durability.py::test_everything_killed_in_turn_and_together_goes_on_by_the_same_commands": (
        "minips serve --checkpoint",
        "minips work --connect tcp://127.0.0.1:7071 --token-file token --rank",
    ),
    "test_teachers.py::test_it_runs_to_its_end_where_pip_installs_it": ("pip install -e .",),
    "test_teachers.py::test_the_command_of_the_page_runs_the_notebook_and_stops_at_a_wrong_key": (
        "MINIPS_AUTOPLAY=1 jupyter execute mine_course/",
    ),
    "test_teachers.py::test_a_learner_opens_it_predicts_answers_and_reports": ("minips lab --course mine",),
    "test_teachers.py::test_five_commands_lead_to_the_marks_of_a_class": (
        "minips lab --class",
        "minips grade",
        "cat marks.csv",
    ),
    "test_grading.py::test_grading_marks_nobodys_progress_and_takes_several_files": ("minips check",),
}
"""The tests of commands that do not run by themselves, with the beginnings of these commands."""
MINE = """
import minips as ps

def make():
    return ps.SoftmaxRegression(*ps.datasets.synthetic(rows=80, features=5, classes=2))

make_problem = make
"""
QUESTIONS = {
    "How do I see it run?": ("README.md#see-it-run", "minips demo"),
    "How do I open the lessons?": ("README.md#learn", "minips lab"),
    "How do I grade thirty files?": ("docs/teachers.md#grade", "minips grade"),
    "How do I see what my students predicted?": ("docs/teachers.md#read-predictions-and-answers", "lab.report()"),
    "How do I hand out lessons without solutions?": ("docs/teachers.md#release-the-lessons", "minips lab --class"),
    "How do I fill eight weeks?": ("docs/syllabi.md#eight-weeks", "minutes"),
    "What do my students get wrong?": ("docs/lesson-plans.md", "Misconceptions"),
    "How do I bring a course of my own?": ("docs/own-course.md", "minips lab --course"),
    "How do I train from the shell?": ("docs/training.md#describe-a-run", "minips train"),
    "How do I stop early, and keep a log?": ("docs/training.md#watch-a-run", "EarlyStopping"),
    "How do I resume a run?": ("docs/training.md#save-resume-and-predict", "resume="),
    "What is lost if a server dies?": ("docs/durability.md#the-promises", "its journal"),
    "How do I predict new rows with a saved model?": ("docs/training.md#save-resume-and-predict", ".predict("),
    "How do I train with FedAvg or DiLoCo?": ("docs/training.md#take-local-steps", "DiLoCo"),
    "How do I train a large embedding table?": ("docs/training.md#push-rows-of-a-table", "rows_needed"),
    "How do I log to TensorBoard?": ("docs/recipes.md#tensorboard", "SummaryWriter"),
    "How do I use the server in my own loop?": ("docs/server.md#push-and-pull", "ps.connect"),
    "How do I run on two machines?": ("docs/clusters.md#by-hand-over-tls", "minips serve"),
    "How do I run on a Ray cluster?": ("docs/clusters.md#ray", "ray start"),
    "What happens if a worker dies?": ("docs/clusters.md#servers-and-workers-by-hand", "started again"),
    "How do I write a transport?": ("docs/stages.md#a-transport", "own_transport.py"),
    "How do I train a model of my own?": ("docs/stages.md#a-problem", "ps.Problem"),
    "How do I use it with PyTorch or scikit-learn?": (
        "docs/FAQ.md#can-i-use-pytorch-scikit-learn-or-jax",
        "TorchProblem",
    ),
    "What will a step cost on machines that I do not have?": ("docs/cost.md#ask-about-other-machines", "Cluster("),
    "May I let strangers connect?": ("SECURITY.md#what-minips-protects", "strangers"),
    "Which learning rate does ASP need?": ("docs/FAQ.md#which-learning-rate-do-ssp-and-asp-need", "1/workers"),
    "How do I write a client in another language?": ("minips/core/PROTOCOL.md", "minips/1"),
    "Where do I begin to read the code?": ("docs/reading.md", "nano.py"),
    "How do I run the tests?": ("CONTRIBUTING.md#set-up", "pytest"),
}
"""A new user's questions, the page and the section that answer them, and a word of the answer."""


def test_the_readme_is_short():
    assert len((pages.ROOT / "README.md").read_bytes()) <= MOST_BYTES


@pytest.mark.parametrize("name", pages.PAGES)
def test_its_links_lead_somewhere(name):
    for file, anchor in pages.links(name):
        assert (pages.ROOT / file).exists(), file
        assert not anchor or anchor in pages.anchors(file), f"{file}#{anchor}"


@pytest.mark.parametrize("name", pages.PAGES)
def test_the_tests_and_files_that_it_names_exist(name):
    folders = "tests|minips|benchmarks|examples|lessons|docs"
    for file, test in re.findall(rf"`((?:{folders})/[\w/]+\.\w+)(?:::(\w+))?`", pages.text(name)):
        if "NN" in file:  # any lesson's
            continue
        assert (pages.ROOT / file).exists(), file
        assert not test or f"\ndef {test}(" in pages.text(file), (file, test)


def test_every_page_of_the_guide_is_one_click_from_the_readme():
    linked = {one.file for one in pages.links("README.md")} | {"README.md"}
    assert {*pages.GUIDE, *pages.OTHERS} - linked == {"lessons/GLOSSARY.md"}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_new_users_question_is_answered_two_clicks_away(question):
    place, word = QUESTIONS[question]
    file, _, anchor = place.partition("#")
    first = set(pages.links("README.md")) | {pages.Link("README.md", one) for one in pages.anchors("README.md")}
    read = {one.file for one in first if one.file.endswith(".md")}
    second = {link for page in read for link in pages.links(page)}
    reached = first | second | {pages.Link(page, there) for page in read for there in pages.anchors(page)}
    assert (file, anchor) in reached
    heading, *_ = [one for one in pages.headings(file) if not anchor or pages.anchor(one) == anchor]
    assert word in (pages.section(file, heading) if anchor else pages.text(file))


@pytest.mark.parametrize("name", pages.GUIDE)
def test_every_block_of_code_is_of_a_kind_that_is_run(name):
    assert pages.languages(name) <= LANGUAGES
    assert name == "docs/cost.md" or "text" not in pages.languages(name)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.soak] if name in LONG else [])
        for name in pages.GUIDE
        if pages.blocks(name, "python") and name not in FILES
    ],
)
def test_its_python_runs_as_it_stands(name, tmp_path):
    program = "\n".join([SHORTER.get(name, ""), *pages.blocks(name, "python")])
    if "ps.Hosts(" in program and (why := hosts.lacking()):
        pytest.skip(f"hosts cannot be made here: {why}")
    done([sys.executable, "-W", "ignore", "-c", program], tmp_path)


def done(command, folder):
    environment = {**os.environ, "PYTHONPATH": str(pages.ROOT), "MPLBACKEND": "Agg", "MINIPS_AUTOPLAY": "1"}
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_every_command_of_minips_is_understood():
    parsers = {"minips": cli._parser(), "benchmarks": benches.parser()}
    known = {program: {*parser._subparsers._group_actions[0].choices} for program, parser in parsers.items()}
    seen = set()
    for page in set(pages.PAGES) - {"CHANGELOG.md"}:
        for line in [*pages.commands(page), *pages.inline(page)]:
            if found := re.match(r"(?:\.venv/bin/)?(minips|python -m benchmarks) (.+)", line):
                program, rest = found[1].removeprefix("python -m "), found[2]
                seen.add((program, rest.split()[0]))
                if rest in {*known[program], "--help"}:
                    continue
                _, unknown = parsers[program].parse_known_args(shlex.split(re.sub(r"--load \S+ ", "", rest)))
                assert unknown == [], (page, line)
    assert seen >= {("benchmarks", table) for table in known["benchmarks"]}


def held(line):
    """The tests that run this command."""
    return [test for test, beginnings in HELD.items() if line.startswith(beginnings)]


def test_a_command_that_does_not_run_by_itself_has_its_test():
    lines = [line for page in pages.GUIDE for line in pages.commands(page)]
    assert {test for line in lines for test in held(line)} == {*HELD}
    assert [line for line in lines if not line.startswith("minips ") and not held(line)] == []
    for file, _, name in (test.partition("::") for test in HELD):
        assert f"\ndef {name}(" in (pages.ROOT / "tests" / file).read_text(encoding="utf-8")


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name in pages.GUIDE if pages.commands(name)])
def test_its_commands_run_as_they_stand(name, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    (stage,) = (block for block in pages.blocks("README.md", "python") if "class Round" in block)
    (tmp_path / "mystages.py").write_text(stage)
    for line in pages.commands(name):
        if not held(line):
            done([sys.executable, "-m", *shlex.split(line)], tmp_path)


@pytest.mark.soak
def test_a_server_and_its_workers_are_started_by_hand(tmp_path):
    """The commands of the block that does so, at a free port and for a few steps."""
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "c.json").write_text('{"workers": 2, "steps": 5}')
    lines = [one for one in pages.commands("docs/clusters.md") if "tcp://127.0.0.1:7071" in one]
    serve, work, status = (line.removeprefix("minips ").replace(":7071", ":0") for line in lines)
    with Started(tmp_path, *serve.split()) as server:
        address = re.search("--connect (.*) --token", server.until("    minips work --"))[1]
        assert "waits for" in done([sys.executable, "-m", "minips", *at(status, address)], tmp_path)
        with Started(tmp_path, *at(work, address)) as one, Started(tmp_path, *at(work, address)) as other:
            assert [worker.ended()[0] for worker in (one, other, server)] == [0, 0, 0]
    assert Run.load(tmp_path / "run.npz").updates == 10


def at(command, address):
    return command.replace("tcp://127.0.0.1:0", address).split()


def test_the_readmes_measurements_are_rows_of_the_benchmarks_page():
    rows = [line for line in pages.text("README.md").splitlines() if re.match(r"\| .+ ms \(", line)]
    assert len(rows) == 4
    assert [row for row in rows if row not in pages.text("docs/benchmarks.md")] == []
