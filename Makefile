# make app    install what is missing, then serve the dashboard (PORT=8501; HOSTS="app.example": names it answers to as well)
# make decoder  add SmolLM2-135M, a small decoder of 90 MB, to the installed models
# make test   all tests of the suite, those in a real browser included
# make wheel  dist/headlab-…whl, which `pip install` takes: library, commands, dashboard, the demo's results
# make release  wheel, source archive and checksums in dist/, built from what is committed and tested (ANYWAY=1: also from what is not)
# make check  formatting, lint, types and the fast tests
# make soak   load, kills and streams at full size; what ran goes to benchmarks/results/soak.json
# make docs   the documentation as a site: site/index.html, its examples run anew (five minutes at most)
# make bench  the comparison with other libraries, in an environment of its own (25 minutes)
# make lock   the requirements files again, from pyproject.toml (UPGRADE="pytest ruff" or UPGRADE=all: newer versions)
# make clean  remove what the tools left behind; installed packages and results stay

PORT ?= 8501
HOSTS ?=
VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin
# The option replaces the list in .streamlit/config.toml, so this computer's own names are said again.
ALLOWED = $(if $(HOSTS),$(foreach host,localhost 127.0.0.1 ::1 $(HOSTS),--server.allowedHosts $(host)))
TWO = -n 2 --dist loadfile --no-loadscope-reorder # a file's tests in one process; the order is that of tests/conftest.py

.PHONY: app wheel release decoder test check soak docs bench lock clean install install-dev

app: install
	@$(BIN)/python tools/port.py "$(PORT)"
	@exec $(BIN)/python -m streamlit run app.py --server.port "$(PORT)" --server.headless true $(ALLOWED)

wheel: install-dev
	@rm -rf build dist
	@$(BIN)/python -m build --no-isolation --outdir dist . >/dev/null
	@ls dist

release: install-dev
	@$(BIN)/python tools/release.py $(if $(ANYWAY),--anyway)

test: export PYTHONDONTWRITEBYTECODE = # the suite starts many processes, and each would compile anew
test: install-dev
	@sh tools/chromium.sh
	@$(BIN)/python -m pytest $(TWO) $(PYTEST)

check: install-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest $(TWO) -m "not slow and not browser and not soak"

soak:
	@PYTHON="$(PYTHON)" sh tools/install.sh "$(VENV)" requirements.txt requirements-dev.txt requirements-soak.txt requirements-docs.txt
	-@PYTHON="$(PYTHON)" sh tools/install.sh "$(VENV)" requirements-decoder.txt # its tests are skipped without it
	@sh tools/chromium.sh
	@$(BIN)/python -m pytest -m soak --soak-out=benchmarks/results/soak.json

docs:
	@PYTHON="$(PYTHON)" sh tools/install.sh "$(VENV)" requirements.txt requirements-docs.txt
	@$(BIN)/python tools/docs_site.py

bench:
	@PYTHON="$(PYTHON)" sh tools/install.sh .venv-bench requirements.txt requirements-bench.txt
	.venv-bench/bin/python benchmarks/estimators.py

install:
	@PYTHON="$(PYTHON)" sh tools/install.sh "$(VENV)" requirements.txt

install-dev:
	@PYTHON="$(PYTHON)" sh tools/install.sh "$(VENV)" requirements.txt requirements-dev.txt
	-@PYTHON="$(PYTHON)" sh tools/install.sh "$(VENV)" requirements-decoder.txt # its tests are skipped without it

decoder: install
	@PYTHON="$(PYTHON)" sh tools/install.sh "$(VENV)" requirements-decoder.txt

lock:
	@$(PYTHON) tools/lock.py $(UPGRADE)

clean:
	rm -rf build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path "./$(VENV)/*" -prune -exec rm -rf {} +
