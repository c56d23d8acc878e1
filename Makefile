# make lab        open the lessons in JupyterLab
# make test       run every check that CI runs
# make notebooks  build notebooks/*.ipynb again from notebooks/source/*.py
# make clean      remove what the commands made; the learner's work/ stays
#
# The first run makes .venv and installs requirements.lock; later runs install only when that file changed.
# Options: PYTHON=/path/to/python3.11   LAB_ARGS="--no-browser --port 9999"   TEST_ARGS="-k window"

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	$$p -c '$(NEW_ENOUGH)' >/dev/null 2>&1 && { echo $$p; break; }; done)
ROOT_FLAG := $(if $(filter 0,$(shell id -u)),--allow-root)
NBVAL := --nbval --nbval-current-env --nbval-cell-timeout 60 --nbval-sanitize-with tests/sanitize.cfg
export OMP_NUM_THREADS ?= 1

.PHONY: lab test notebooks handout venv install browser clean

lab: install handout
	cd work && ../$(BIN)/jupyter lab $(ROOT_FLAG) --LabApp.default_url=/lab/tree/00_start_here.ipynb $(LAB_ARGS)

test: install browser
	$(BIN)/python -m pytest -n 2 --dist loadfile $(NBVAL) $(TEST_ARGS) tests notebooks

notebooks: install
	$(BIN)/python tools/build_notebooks.py

handout: install
	@$(BIN)/python tools/handout.py

browser: install
	@$(BIN)/python tools/browser.py

install: $(STAMP)

venv: $(BIN)/python

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer was found. Install Python 3.11, or say where it is:" \
		"make $(firstword $(MAKECMDGOALS)) PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(STAMP): requirements.lock pyproject.toml | $(BIN)/python
	@echo "Installing the packages of requirements.lock into $(VENV): a minute or two, about 1.5 GB."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/jupyter labextension disable "@jupyterlab/apputils-extension:announcements"
	$(BIN)/python -c "import matplotlib.font_manager"
	@touch $(STAMP)

clean:
	rm -rf $(VENV) build dist
