# Set-up and the commands that users and CI call; all is installed in .venv. For make 3.81 too, which macOS has.
.DEFAULT_GOAL := help
.PHONY: help setup demo findings reproduce overnight test services test-all bench gpu-pack lint format constraints

PYTHON ?= python3
BIN := .venv/bin
CORES ?= all
INSTALL = $(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt

# A machine that offers its own torch build to pip offers it to uv too.
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
# Commands find each other in the environment, also where it is not activated.
export PATH := $(CURDIR)/$(BIN):$(PATH)

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-14s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)
setup: .venv/installed ## Make the environment in .venv
.venv/installed: pyproject.toml constraints.txt
	@"$(PYTHON)" -c 'import re, sys; own = sys.version_info[:3]; low, high = re.search("requires-python = .>=([0-9.]+),<([0-9.]+)", open("pyproject.toml").read()).groups(); tuple(map(int, low.split("."))) <= own < tuple(map(int, high.split("."))) or sys.exit("Python %d.%d.%d found; this needs one from %s on and before %s: make PYTHON=python3.13 setup" % (*own, low, high))'
	@echo "Installing into .venv, the first time for minutes: PyTorch alone is some GB on Linux"
	test -x $(BIN)/uv || { "$(PYTHON)" -m venv --clear .venv && $(BIN)/python -m pip install --quiet --no-user uv; }
	$(INSTALL) --compile-bytecode --editable '.[pipeline,report,remotes,dev]'
	@touch $@

# What an interrupted call leaves a user to know, under Snakemake's errors.
MAKE_STUDY = @snakemake --cores $(CORES) results/$(1)/report.html || { echo "Not finished: the same command goes on from here." >&2; exit 1; }; \
  echo "The report: results/$(1)/report.html   The tables: results/$(1)/tables/"

demo: setup ## The demo study: data, pretraining, runs, tables and a report, on two CPU cores
	$(call MAKE_STUDY,demo)

reproduce: setup ## The paper's whole study (needs its data; see README)
	$(call MAKE_STUDY,paper)

overnight: setup ## Real CIFAR at reduced scale, after a forecast, and the report
	twf plan overnight --forecast
	$(call MAKE_STUDY,overnight)

findings: setup ## The findings' numbers and figures in README and docs/, from the measured records
	twf findings

test: setup ## The fast tests, in a minute or two
	pytest --numprocesses auto --dist worksteal -m "not slow and not service"

services: ## What `make test-all` talks to, from Debian's packages (as root): Slurm, Chromium
	apt-get update --quiet --quiet
	DEBIAN_FRONTEND=noninteractive apt-get install --quiet --quiet --yes slurm-wlm munge chromium

test-all: setup ## Every test, the slow ones and those that need services too
	pytest --numprocesses auto

bench: setup ## Speed of training and its parts here; make bench BENCH='--help' says what else
	python -m benchmarks $(BENCH)
gpu-pack: setup ## What a GPU machine without a network lacks; make gpu-pack PACK='--help' says how
	python -m benchmarks.gpu.pack $(PACK)

CHECKS := "ruff format --check" "ruff check" mypy "lint-imports --no-cache --no-logo" "snakefmt --check Snakefile workflow" "snakemake --lint"
lint: setup ## Formatting, types, and the workflow's style: all that each of the checks finds
	@failed=0; for check in $(CHECKS); do $$check || failed=1; done; exit $$failed
format: setup ## Format the code
	ruff format
	ruff check --fix --exit-zero
	snakefmt Snakefile workflow

constraints: setup ## Resolve constraints.txt anew from pyproject.toml
	env -u UV_FIND_LINKS -u PIP_FIND_LINKS uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --no-annotate --no-header --quiet --upgrade --output-file constraints.txt
