# Each target sets up .venv by itself; nothing but Python 3.11 or newer is needed beforehand.
export PYTHONSAFEPATH := 1

PYTHON ?= $(shell for name in python3.13 python3.12 python3.11 python3; do \
	"$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && command -v "$$name" && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Most tests wait for servers, so that four fill two cores; each has servers of its own (0.6 GiB).
JOBS ?= 4
CODE := workflows activities pool worker tests benchmarks examples deploy src/emberpool/__init__.py

.PHONY: help setup demo test cluster cluster-build cluster-check cluster-tools cluster-down test-cluster test-images lint format types layers bench transfers soak schema reference docs ui package ci clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(STAMP) ## Set up .venv

$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer found; install one, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || "$(PYTHON)" -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --group dev -e '.[local]'
	@touch $@

demo: $(STAMP) ## Run the main job on this machine (ARGS="--problems 16")
	$(BIN)/emberpool demo $(ARGS)

test: $(STAMP) ## Run the tests (ARGS="tests/stack -x", JOBS=4 side by side)
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

transfers: $(STAMP) ## Move 1 GiB into a pod and out again, and watch the memory (TRANSFER_MIB=N)
	TRANSFER_MIB=$(or $(TRANSFER_MIB),1024) $(BIN)/python -m pytest -s tests/workflows/test_files_move_by_url.py -k small

lint: $(STAMP) ## Check style and format
	$(BIN)/ruff check $(wildcard $(CODE))
	$(BIN)/ruff format --check $(wildcard $(CODE))

format: $(STAMP) ## Bring the format in order
	$(BIN)/ruff check --fix $(wildcard $(CODE))
	$(BIN)/ruff format $(wildcard $(CODE))

types: $(STAMP) ## Check types, strictly, twice
	$(BIN)/mypy
	$(BIN)/pyright

layers: $(STAMP) ## Check that imports go one way
	$(BIN)/lint-imports

cluster: $(STAMP) ## Build and start the test cluster (Linux, root, Go); KUBECONFIG=... uses yours
	PYTHONPATH=deploy $(BIN)/python -m testcluster up

cluster-check: ## Say whether the test cluster can run here, and what is missing
	@PYTHONPATH=deploy "$(PYTHON)" -m testcluster check

cluster-tools: ## Install the Debian packages that building the test cluster takes
	@PYTHONPATH=deploy "$(PYTHON)" -m testcluster install

cluster-build: ## Build what the test cluster is made of: minutes, once
	PYTHONPATH=deploy "$(PYTHON)" -m testcluster build

cluster-down: $(STAMP) ## Take the test cluster down, without a trace
	PYTHONPATH=deploy $(BIN)/python -m testcluster down

test-cluster: $(STAMP) cluster-build ## Build the test cluster and run the tests that need it
	$(BIN)/python -m pytest -m cluster --durations 10 $(ARGS)

test-images: $(STAMP) cluster-build ## Build deploy/images with buildah, without a registry, and try each on the test cluster: minutes
	$(BIN)/python -m pytest -m images --durations 5 -s $(ARGS)

bench: $(STAMP) ## Measure (ARGS="--json figures.json")
	$(BIN)/python benchmarks/bench.py $(ARGS)

soak: $(STAMP) ## Drive the index's scripts against its model (STEPS=1000000 SEED=N)
	$(BIN)/python benchmarks/soak.py --steps $(or $(STEPS),1000000) $(if $(SEED),--seed $(SEED)) --count soak-steps.txt

schema: $(STAMP) ## Write docs/schema/ anew
	@for name in $$($(BIN)/emberpool schema | cut -d' ' -f1); do $(BIN)/emberpool schema $$name > docs/schema/$$name.json; done

reference: $(STAMP) ## Write docs/reference/ and the picture of the states anew
	PYTHONPATH=tests $(BIN)/python -m reference.write

docs: $(STAMP) ## Build the documentation into site/; a broken link fails
	$(BIN)/zensical build --clean --strict
	$(BIN)/python .ci/site_is_whole.py site

ui: $(STAMP) ## Take the pictures in docs/images/ (needs chromium and tmux)
	PYTHONPATH=tests $(BIN)/python tests/screenshots.py
	$(BIN)/python tests/terminal_picture.py

package: $(STAMP) ## Build the wheel, compare it with git, and try it installed
	.ci/package $(BIN)/python

ci: ## Everything that CI runs
	.ci/run

clean: ## Remove what the targets made
	rm -rf $(VENV) build dist site .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
