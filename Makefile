# Set-up and the commands that users and CI call. Everything lives in .venv; nothing is installed
# elsewhere. `make demo` first.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo reproduce overnight pull test services test-all bench gpu-pack test-versions lint format constraints

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORES ?= all

# A machine that offers its own torch build to pip offers it to uv too.
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
# Commands find each other in the environment, also where it is not activated.
export PATH := $(CURDIR)/$(BIN):$(PATH)

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

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
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if v in ((3, 11), (3, 12)) else f"Python {v[0]}.{v[1]} found; this needs 3.11 or 3.12: make PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --constraint constraints.txt --editable '.[pipeline,report,remotes,dev]'
	@echo "$(CURDIR)" > $@

# What an interrupted call leaves a user to know, under Snakemake's errors.
MAKE_STUDY = snakemake --cores $(CORES) $(1) || { echo "Not finished: the same command goes on from here." >&2; exit 1; }

demo: setup ## The demo study: data, pretraining, runs, tables and a report, on two CPU cores
	@echo "Runs write to logs/demo/runs/; Ctrl-C stops, and make demo goes on from there."
	@$(call MAKE_STUDY,results/demo/report.html)
	@echo "The report: results/demo/report.html   The tables: results/demo/tables/"

reproduce: setup ## The paper's whole study (needs its data; see README)
	@$(call MAKE_STUDY,results/paper/report.html)

overnight: setup ## Real CIFAR at reduced scale: what git does not have of it, after a forecast, and the report
	@$(call MAKE_STUDY,results/overnight-search/tables/best-hyperparameters.yaml)
	twf plan overnight --forecast
	@$(call MAKE_STUDY,results/overnight/report.html)

pull: setup ## A study's data, checkpoints and results from the DVC remote; make pull STUDY=demo
	twf pull $(STUDY)

test: setup ## The fast tests, in minutes
	pytest --numprocesses auto -m "not slow and not service"

services: ## What `make test-all` talks to, from Debian's packages (as root): Slurm, sshd, Chromium
	apt-get update --quiet --quiet
	DEBIAN_FRONTEND=noninteractive apt-get install --quiet --quiet --yes slurm-wlm munge openssh-server chromium

test-all: setup ## Every test, the slow ones and those that need services too
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[services]'
	pytest --numprocesses auto

# The lowest and the newest that pyproject.toml allows; what they bring with them is theirs.
TORCHES := 2.11.0 2.13.0
OTHERS := grep -vE '^(torch|torchvision|triton|setuptools|cuda-|nvidia-[^m])' constraints.txt

test-versions: setup ## Golden numbers and compiled steps on the PyTorch versions that are allowed; downloads GBs
	@for torch in $(TORCHES); do \
	  echo "== PyTorch $$torch"; python=.venv-torch/$$torch/bin/python; \
	  test -x $$python || $(PYTHON) -m venv .venv-torch/$$torch; \
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
	env -u UV_FIND_LINKS -u PIP_FIND_LINKS uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --no-annotate --no-header --quiet --upgrade --output-file constraints.txt
