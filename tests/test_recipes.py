"""The recipes of docs/recipes.md, run as they stand."""

import doctest
import importlib.util
import logging
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "recipes.md").read_text()
BEGIN, *RECIPES = re.split(r"^## ", PAGE, flags=re.MULTILINE)
LIBRARIES = {"TensorBoard": "tensorboardX", "MLflow": "mlflow", "Optuna": "optuna"}


@pytest.mark.soak
@pytest.mark.outside  # MLflow keeps its database open
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MLflow's, of SQLAlchemy
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.split("\n")[0])
def test_a_recipe_runs_as_it_stands(recipe, tmp_path, monkeypatch, capsys):
    title = recipe.split("\n")[0]
    if importlib.util.find_spec(LIBRARIES[title]) is None:
        pytest.skip(f"{LIBRARIES[title]} is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    logging.disable(logging.INFO)
    try:
        example = doctest.DocTestParser().get_doctest(BEGIN + recipe, {}, title, "docs/recipes.md", 0)
        failures, tried = doctest.DocTestRunner().run(example)
    finally:
        logging.disable(logging.NOTSET)
    assert (failures, tried > 4) == (0, True), capsys.readouterr().out
    lines = [one for one in re.findall(r"^(?:>>>|\.\.\.) (.*)", recipe, flags=re.MULTILINE) if "import" not in one]
    assert len(lines) <= 9


def test_every_recipe_is_known():
    assert [recipe.split("\n")[0] for recipe in RECIPES] == [*LIBRARIES]
