# Set-up and the commands that users and CI call. Everything lives in .venv; nothing is installed
# elsewhere. `make demo` first. For make 3.81 and bash 3.2 too, which macOS has.
SHELL := bash
.DEFAULT_GOAL := help
.PHONY: help setup demo reproduce overnight pull test services test-all bench gpu-pack test-versions lint format constraints

PYTHON ?= python3
# The Pythons that pyproject.toml allows, as 3.1 3.2
PYTHONS = $(shell sed -nE 's/^requires-python = ">=3\.([0-9]+),<3\.([0-9]+)"$$/\1 \2/p' pyproject.toml | \
  while read -r low end; do seq -f 3.%g "$$low" $$((end - 1)); done)
VENV := .venv
BIN := $(VENV)/bin
CORES ?= all

# A machine that offers its own torch build to pip offers it to uv too.
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
# What a user whom the system does not know lacks, as in a container; Snakemake and DVC need both.
# `id` gives a number then.
export HOME ?= $(CURDIR)/.snakemake/home
ifndef LOGNAME
export LOGNAME := $(shell id -un 2> /dev/null)
endif
# Without its cache where the home cannot be written.
$(VENV)/installed test-all test-versions constraints: export UV_NO_CACHE ?= $(shell cache=$${UV_CACHE_DIR:-$${XDG_CACHE_HOME:-$(HOME)/.cache}/uv}; \
  mkdir -p "$$cache" 2> /dev/null && test -w "$$cache" && echo false || echo true)
# Commands find each other in the environment, also where it is not activated.
export PATH := $(CURDIR)/$(BIN):$(PATH)

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-14s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/installed ## Make the environment in .venv

# An environment names the folder that it was made in; one that came with a copy of the folder, or
# was moved with it, runs the code there, or nothing.
ifneq ($(wildcard $(VENV)/installed),)
ifneq ($(shell cat $(VENV)/installed),$(CURDIR))
$(VENV)/installed: moved
endif
endif

.PHONY: moved
moved:
	@echo "$(VENV) was made in another folder, or by an older version: it is made anew here"
	rm -rf $(VENV)

$(VENV)/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; own = "%d.%d" % sys.version_info[:2]; fit = sys.argv[1:]; own in fit or sys.exit("Python %s found; this needs %s or %s: make PYTHON=python%s" % (own, ", ".join(fit[:-1]), fit[-1], fit[-1]))' $(PYTHONS)
	@echo "Installing into $(VENV), the first time for minutes: PyTorch alone is some GB on Linux"
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --no-user uv
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --constraint constraints.txt --editable '.[pipeline,report,remotes,dev]'
	@echo "$(CURDIR)" > $@

# What an interrupted call leaves a user to know, under Snakemake's errors.
MAKE_STUDY = snakemake --cores $(CORES) $(1) || { echo "Not finished: the same command goes on from here." >&2; exit 1; }

demo: setup ## The demo study: data, pretraining, runs, tables and a report, on two CPU cores
	@echo "A few minutes on two CPU cores. Runs write to logs/demo/runs/; Ctrl-C stops, and make demo goes on from there."
	@$(call MAKE_STUDY,results/demo/report.html)
	@echo "The report: results/demo/report.html   The tables: results/demo/tables/"

reproduce: setup ## The paper's whole study (needs its data; see README)
	@$(call MAKE_STUDY,results/paper/report.html)
	@echo "The report: results/paper/report.html   The tables: results/paper/tables/"

overnight: setup ## Real CIFAR at reduced scale: a forecast, then the study and its report
	twf plan overnight --forecast
	@$(call MAKE_STUDY,results/overnight/report.html)
	@echo "The report: results/overnight/report.html   The tables: results/overnight/tables/"

pull: setup ## A study's data, checkpoints and results from the DVC remote; make pull STUDY=demo
	twf pull $(STUDY)

test: setup ## The fast tests, in minutes
	pytest --numprocesses auto --dist worksteal -m "not slow and not service"

services: ## What `make test-all` talks to, from Debian's packages (as root): Slurm, sshd, Chromium
	apt-get update --quiet --quiet
	DEBIAN_FRONTEND=noninteractive apt-get install --quiet --quiet --yes slurm-wlm munge openssh-server chromium

test-all: setup ## Every test, the slow ones and those that need services too
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[services]'
	pytest --numprocesses auto

# The lowest and the newest that pyproject.toml allows; what they bring with them is theirs.
TORCHES := 2.11.0 2.13.0
OTHERS := grep -vE '^(torch|torchvision|triton|setuptools|cuda-|nvidia-[^m])' constraints.txt

test-versions: setup ## The fast tests on each Python here, golden numbers on each PyTorch allowed; downloads GBs
	@set -e; for version in $(PYTHONS); do \
	  python=$$(uv python find --no-project --no-python-downloads $$version 2> /dev/null) \
	    || { echo "== Python $$version: not found on this machine, not tried"; continue; }; \
	  echo "== Python $$version"; $(MAKE) --no-print-directory VENV=.venv-versions/python-$$version PYTHON=$$python test; \
	done
	@set -e; for torch in $(TORCHES); do \
	  echo "== PyTorch $$torch"; python=.venv-versions/torch-$$torch/bin/python; \
	  test -x $${python%python}pip || $(PYTHON) -m venv .venv-versions/torch-$$torch; \
	  uv pip install --quiet --python $$python --constraint <($(OTHERS)) "torch==$$torch" --editable '.[report,dev]'; \
	  $$python -m pytest --numprocesses auto -p no:cacheprovider tests/learning \
	    -k "golden or written_out or does_as_a_plain_one or one_graph"; \
	done

bench: setup ## Speed of training and its parts here; make bench BENCH='--help' says what else
	python -m benchmarks $(BENCH)

gpu-pack: setup ## What a GPU machine without a network lacks; make gpu-pack PACK='--help' says how
	python -m benchmarks.gpu.pack $(PACK)

lint: setup ## Formatting, types, and the workflow's style
	ruff format --check
	ruff check
	mypy
	lint-imports --no-cache --no-logo
	snakefmt --check Snakefile workflow
	snakemake --lint

format: setup ## Format the code
	ruff format
	ruff check --fix
	snakefmt Snakefile workflow

constraints: setup ## Resolve constraints.txt anew from pyproject.toml
	env -u UV_FIND_LINKS -u PIP_FIND_LINKS uv pip compile pyproject.toml --all-extras --universal --python-version $(firstword $(PYTHONS)) --no-annotate --no-header --quiet --upgrade --output-file constraints.txt
