# Two commands on a fresh machine with Python (3.10 or newer) and make: `make demo` and `make test`.
# All set-up goes into .venv here, that of `make docs` into .venv-docs; `make clean` removes both. PYTHON=... chooses
# another interpreter.

SHELL := /bin/sh
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
DOCS := .venv-docs
CHECKOUT := $(CURDIR)

# The first that runs, is new enough and can make environments. Being on PATH is not enough: version managers put
# commands there that only print which versions they could offer.
find_python = \
	found=; for candidate in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11 python3.10 python; do \
		if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; \
		then found=$$candidate; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
		echo "weft needs Python 3.10 or newer with its venv module (Debian, Ubuntu: apt install python3-venv)." >&2; \
		echo "If you have one under another name: make PYTHON=/path/to/python ..." >&2; exit 1; \
	fi

# Tests start thousands of processes, each of which would compile all that it imports: twice the time.
unexport PYTHONDONTWRITEBYTECODE

# Built once, outside the checkout: $WEFT_TOOLS or ~/.cache/weft-tools (tests/tools).
.PHONY: help demo test test-all tools lint types docs bench study conformance chart wheel clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.ready ## run the demo: a report on the standard library's sources, on a local cluster
	@$(BIN)/python demo/stdlib_report.py $(ARGS)

# In several processes (tests/conftest.py says how many). Each begins with a run of neighbouring tests, so that few
# clusters of a module are started twice, and takes over from another when it has none left. ARGS=-n0: in one process.
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal

test: $(VENV)/.ready ## run the tests, without the most thorough ones; ARGS='-k name' and the like are passed on
	@$(PYTEST) -m 'not thorough' $(ARGS)

test-all: $(VENV)/.ready ## run all tests (tests/README.md); ARGS as above
	@$(PYTEST) $(ARGS)

tools: $(VENV)/.ready ## install the programs that some tests need; ARGS='helm kwok', ARGS=--list
	@$(BIN)/python -m tests.tools.install $(ARGS)

lint: $(VENV)/.ready ## check style, format and who imports whom
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/lint-imports

types: $(VENV)/.ready ## check types
	@$(BIN)/mypy

docs: $(DOCS)/.ready ## build the site into build/docs; a link between pages that leads nowhere is an error
	@$(DOCS)/bin/python -m sphinx -W --keep-going -q -b html docs build/docs
	@echo "build/docs/index.html"

bench: $(VENV)/.ready-bench ## compare with dask.distributed, Ray and the standard library's pools
	@$(BIN)/python -m benchmarks.run $(ARGS)

study: $(VENV)/.ready-bench ## run the study of tasks, arrays and data frames, beside dask and Ray; ARGS=--quick: 3 minutes
	@$(BIN)/python -m benchmarks.study $(ARGS)

conformance: $(VENV)/.ready-conformance ## run dask's own tests on the graph engines and a cluster, and Python's on weft.Executor; ARGS='--engine cluster'
	@$(BIN)/python -m tests.conformance.run $(ARGS)

chart: $(VENV)/.ready ## write the README of the Helm chart
	@$(BIN)/python -m tests.helm.update

# By way of the source archive, so that this is whole too. In a folder of its own: there, `import weft` can only mean
# the installed one.
wheel: $(VENV)/.ready ## build the wheel into dist/ and try it outside the checkout
	@rm -rf dist build
	@echo "building sdist and wheel ..."
	@$(BIN)/python -m build --outdir dist . >$(VENV)/build.log 2>&1 || { cat $(VENV)/build.log >&2; exit 1; }
	@set -e; there=$$(mktemp -d); trap 'rm -rf "$$there"' EXIT; trap 'exit 130' INT TERM; \
	$(BIN)/python -m venv "$$there/env"; \
	"$$there/env/bin/python" -m pip --quiet --disable-pip-version-check install dist/*.whl; \
	mkdir "$$there/empty"; cd "$$there/empty"; \
	"$$there/env/bin/weft" --help >/dev/null; \
	"$$there/env/bin/python" -W error "$(CHECKOUT)/.ci/wheel_smoke.py" "$(CHECKOUT)"

clean: ## remove the environment and everything that was made
	@rm -rf $(VENV) $(DOCS) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache protocol/wire/coders.py
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Written last: an interrupted set-up is done again. The .pth file puts the checkout on sys.path: the finder of an
# editable install comes after it, and in a directory that holds a checkout called "weft" Python would take that for a
# namespace package.
$(VENV)/.ready: pyproject.toml Makefile
	@$(find_python); \
	echo "Setting up $(VENV), once; it may take one to five minutes, most of it for downloads."; \
	if ! $(BIN)/python -c '' 2>/dev/null; then \
		echo "  1/3 creating the environment with $$found"; \
		rm -rf $(VENV) && "$$found" -m venv $(VENV); \
	fi \
	&& echo "  2/3 installing pip" && $(PIP) install 'pip>=23' \
	&& echo "  3/3 installing weft, and what its tests need (the longest step)" && $(PIP) install --editable '.[test,dev]' \
	&& echo "$(CHECKOUT)" >"$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/weft-checkout.pth" \
	&& touch $@ && echo "  done"

$(VENV)/.ready-conformance: $(VENV)/.ready
	@printf 'adding dask and what its tests need to %s (once) ... ' "$(VENV)"; \
	$(PIP) install --editable '.[conformance]' && touch $@ && echo done

# Only what the pages need: Sphinx, and weft's own dependencies, whose docstrings it imports. What tests need takes
# minutes more.
$(DOCS)/.ready: pyproject.toml
	@$(find_python); \
	printf 'setting up %s, once: Sphinx, and what weft needs ... ' "$(DOCS)"; \
	if ! $(DOCS)/bin/python -c '' 2>/dev/null; then rm -rf $(DOCS) && "$$found" -m venv $(DOCS); fi \
	&& pip="$(DOCS)/bin/python -m pip --quiet --disable-pip-version-check" \
	&& $$pip install 'pip>=23' && $$pip install --editable '.[docs]' && touch $@ && echo done

$(VENV)/.ready-bench: $(VENV)/.ready
	@printf 'adding dask.distributed and Ray to %s (once) ... ' "$(VENV)"; \
	$(PIP) install --editable '.[bench]' && touch $@ && echo done
