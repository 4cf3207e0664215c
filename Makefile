# make demo   sets everything up and converts a model that needs no download
# make test   sets everything up and runs all tests
# Both are incremental. `make help` lists the rest.
SHELL := /bin/bash
.DEFAULT_GOAL := help

BUILD ?= build
VENV := .venv
PYTHON := $(VENV)/bin/python
JOBS ?= $(shell nproc)
# Sources are compiled ten at a time, which takes less time; OFF for work on them, where one alone changes.
UNITY ?= ON
TESTS ?= tests/python tests/models
EVERY ?= # --every: the cases of grids that `thinned` leaves out, too
OLDEST := .venv-oldest
OLDEST_TESTS = $(addprefix tests/python/,$(addsuffix .py,test_guard test_guard_document test_caches test_state_caches test_every_patch \
	test_patch_details test_patches_torch test_patches_transformers test_dynamic_shapes test_axis_report \
	test_observed_shapes test_input_observer))
OLDEST_MODELS = $(foreach name,llama mistral t5,"tests/models/test_models.py::test_a_model_with_a_cache_is_right_on_every_set_of_inputs[$(name)]")
# What is done with the oldest torch is done in a copy of the tree, since the libraries lie in it.
TORCH_OLDEST := .venv-torch-oldest
TORCH_OLDEST_PYTHON ?= python3.12
TORCH_OLDEST_TREE := $(BUILD)-torch-oldest
PYTEST := OMP_NUM_THREADS=1 $(PYTHON) -m pytest -q
CPP_FILES = $(shell git ls-files 'include/*.h' 'src/*.h' 'src/*.cpp' 'src/*.cu' 'tests/cpp/*.h' 'tests/cpp/*.cpp' 'examples/*.cpp')

# An environment that is a link belongs to another tree, which sets it up.
ifeq ($(shell test -L $(VENV) && echo link),link)
  ENVIRONMENT :=
  export PYTHONPATH := $(CURDIR)/python
else
  ENVIRONMENT := $(VENV)/.packages
endif
TORCH_OLDEST_ENVIRONMENT := $(if $(shell test -L $(TORCH_OLDEST) && echo link),,$(TORCH_OLDEST)/.packages)
OLDEST_ENVIRONMENT := $(if $(shell test -L $(OLDEST) && echo link),,$(OLDEST)/.packages)

# Paths relative to the tree: other clones and build folders share what was compiled.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1

.PHONY: help setup build wheel demo test test-cpp test-python test-install test-oldest tree-torch-oldest test-torch-oldest wheel-torch-oldest lint format format-check figures sanitize sanitize-threads bench speed table site clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# ---------------------------------------------------------------------------------------------------- set-up
# The packages of a list that are not installed yet.
define install_debian
	@missing=$$(cat $< | xargs -n1 sh -c 'dpkg-query -W -f="$${Status}" "$$0" 2>/dev/null | grep -q "ok installed" || echo "$$0"'); \
	if [ -n "$$missing" ]; then apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(1) $$missing; fi
	@mkdir -p $(VENV) && touch $@
endef

$(VENV)/.apt: requirements/apt.txt
	$(call install_debian)

$(VENV)/.browser: requirements/apt-browser.txt $(ENVIRONMENT) # for the tests of pages, and for nothing else
	$(call install_debian,--no-install-recommends)

$(VENV)/.torch: requirements/torch.txt $(VENV)/.apt
	python3 -m venv $(VENV)
	$(PYTHON) -m pip install -q --disable-pip-version-check -r requirements/torch.txt
	@touch $@

$(VENV)/.packages: requirements/dev.txt $(VENV)/.torch
	$(PYTHON) -m pip install -q --disable-pip-version-check -r requirements/dev.txt
	@echo "$(CURDIR)/python" > $$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/exportguard-tree.pth
	@printf '#!/bin/sh\nexec "%s" -m exportguard "$$@"\n' "$(CURDIR)/$(PYTHON)" > $(VENV)/bin/exportguard && chmod +x $(VENV)/bin/exportguard
	@touch $@

# The oldest transformers that is supported; the Python module is the one that the other environment's torch built.
$(OLDEST)/.packages: requirements/torch.txt requirements/oldest.txt $(VENV)/.apt
	python3 -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install -q --disable-pip-version-check -r requirements/torch.txt
	$(OLDEST)/bin/python -m pip install -q --disable-pip-version-check -r requirements/oldest.txt
	@echo "$(CURDIR)/python" > $$($(OLDEST)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/exportguard-tree.pth
	@touch $@

$(TORCH_OLDEST)/.packages: requirements/torch-oldest.txt $(VENV)/.apt
	@$(TORCH_OLDEST_PYTHON) -c "" 2>/dev/null || { echo "$(TORCH_OLDEST_PYTHON) is missing: install it with its headers, or pass another one, TORCH_OLDEST_PYTHON=..."; exit 1; }
	$(TORCH_OLDEST_PYTHON) -m venv $(TORCH_OLDEST)
	$(TORCH_OLDEST)/bin/python -m pip install -q --disable-pip-version-check -r requirements/torch-oldest.txt
	@touch $@

setup: $(ENVIRONMENT) ## Debian packages and the virtual environment

# ---------------------------------------------------------------------------------------------------- build
$(BUILD)/build.ninja: $(ENVIRONMENT)
	cmake -G Ninja -S . -B $(BUILD) -DPython_EXECUTABLE=$(CURDIR)/$(PYTHON) -DEXPORTGUARD_INPLACE=ON -DEXPORTGUARD_WERROR=$(if $(CI),ON,OFF) -DCMAKE_UNITY_BUILD=$(UNITY) $(CMAKE_OPTIONS)

build: $(BUILD)/build.ninja ## the C++ libraries, the Python module, tests and examples
	@cmake --build $(BUILD) -j $(JOBS)

$(VENV)/.wheel: requirements/wheel.txt $(ENVIRONMENT)
	$(PYTHON) -m pip install -q --disable-pip-version-check -r requirements/wheel.txt
	@touch $@

# The compiler by the name that CMake finds it by, not by Python's, and the warnings of the build: else ccache compiles
# everything again. torch's libraries are those that lie beside the package; auditwheel takes every other one within.
wheel: $(VENV)/.wheel ## the wheel, in dist/
	rm -rf $(BUILD)/wheel dist/exportguard-*.whl
	CXX=c++ CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(PYTHON) -m pip wheel -q --disable-pip-version-check --no-build-isolation --no-deps \
	  -C cmake.define.EXPORTGUARD_WERROR=$(if $(CI),ON,OFF) -C cmake.define.CMAKE_UNITY_BUILD=$(UNITY) -w $(BUILD)/wheel .
	PATH=$(CURDIR)/$(VENV)/bin:$$PATH $(PYTHON) -m auditwheel repair --exclude 'libtorch*.so' --exclude 'libc10*.so' -w dist $(BUILD)/wheel/*.whl

demo: build ## convert an untrained Llama, run it and compare it with eager
	$(PYTHON) -m exportguard validate -m llama --run -v 1 -o $(BUILD)/demo

# ---------------------------------------------------------------------------------------------------- tests
test: test-cpp test-python test-install ## all tests

test-cpp: build
	cd $(BUILD) && ctest --output-on-failure -j $(JOBS)

test-python: build $(VENV)/.browser
	$(PYTEST) -n $(JOBS) --dist worksteal $(EVERY) $(TESTS)

test-install: build wheel
	$(PYTEST) tests/install

test-oldest: build $(OLDEST_ENVIRONMENT) ## guard, caches, patches and some models with the oldest transformers
	OMP_NUM_THREADS=1 $(OLDEST)/bin/python -m pytest -q -n $(JOBS) --dist worksteal $(OLDEST_TESTS) $(OLDEST_MODELS)

# The copy keeps the times of files, so that what did not change is not compiled again.
tree-torch-oldest: $(TORCH_OLDEST_ENVIRONMENT)
	@mkdir -p $(TORCH_OLDEST_TREE)
	@cd $(TORCH_OLDEST_TREE) && find . -type f ! -path './build/*' ! -path './build-*' ! -path './dist/*' ! -name '*.so*' -delete
	@git ls-files -co --exclude-standard -x '.venv*' -z | tar -c --null --ignore-failed-read -T - | tar -x -C $(TORCH_OLDEST_TREE)
	@ln -sfn $(CURDIR)/$(TORCH_OLDEST) $(TORCH_OLDEST_TREE)/.venv

test-torch-oldest: tree-torch-oldest ## the Python tests with the oldest torch, and another Python
	+$(MAKE) -C $(TORCH_OLDEST_TREE) BUILD=build CMAKE_OPTIONS="-DEXPORTGUARD_TESTS=OFF -DEXPORTGUARD_EXAMPLES=OFF" test-python

wheel-torch-oldest: tree-torch-oldest ## the wheel for that torch and that Python
	+$(MAKE) -C $(TORCH_OLDEST_TREE) BUILD=build wheel
	@ls $(TORCH_OLDEST_TREE)/dist/*.whl

sanitize: $(ENVIRONMENT) ## the C++ tests under the address and undefined-behaviour sanitizers
	cmake -G Ninja -S . -B $(BUILD)-sanitize -DPython_EXECUTABLE=$(CURDIR)/$(PYTHON) -DEXPORTGUARD_SANITIZE=ON -DEXPORTGUARD_EXAMPLES=OFF
	cmake --build $(BUILD)-sanitize -j $(JOBS)
	cd $(BUILD)-sanitize && ASAN_OPTIONS=detect_leaks=0 ctest --output-on-failure
	rm -rf $(BUILD)-sanitize/hostile && $(PYTHON) tests/python/hostile_files.py $(BUILD)-sanitize/hostile
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=4096 $(BUILD)-sanitize/tests/cpp/hostile_files $(BUILD)-sanitize/hostile

# With the addresses as they are linked: ThreadSanitizer wants its own, which a kernel may have given away.
sanitize-threads: $(ENVIRONMENT) ## the tests of the guard under ThreadSanitizer
	cmake -G Ninja -S . -B $(BUILD)-threads -DPython_EXECUTABLE=$(CURDIR)/$(PYTHON) -DEXPORTGUARD_SANITIZE=thread -DEXPORTGUARD_EXAMPLES=OFF
	cmake --build $(BUILD)-threads -j $(JOBS) --target test_guard
	setarch -R $(BUILD)-threads/tests/cpp/test_guard

# ---------------------------------------------------------------------------------------------------- checks
lint: $(ENVIRONMENT) ## ruff and mypy
	$(VENV)/bin/ruff check --no-cache python tests benchmarks tools examples cmake
	$(VENV)/bin/mypy --strict python/exportguard

format: $(ENVIRONMENT) ## rewrite the layout of all sources
	$(VENV)/bin/clang-format -i $(CPP_FILES)
	$(VENV)/bin/ruff format python tests benchmarks tools examples cmake

format-check: $(ENVIRONMENT)
	$(VENV)/bin/clang-format --dry-run --Werror $(CPP_FILES)
	$(VENV)/bin/ruff format --check python tests benchmarks tools examples cmake

figures: $(ENVIRONMENT) ## sizes of functions and files beside those of the projects we look up to
	$(PYTHON) benchmarks/figures.py

bench: build ## conversion beside torch.onnx.export, from the same ExportedProgram
	$(PYTHON) benchmarks/convert_llama.py
	$(PYTHON) benchmarks/guard_time.py --check

speed: build ## the section on speed and memory in the README (needs 12 GiB)
	$(PYTHON) benchmarks/convert_llama.py --write README.md

table: build ## the table of models in the README
	$(PYTHON) benchmarks/model_table.py --write README.md

$(VENV)/.site: requirements/site.txt $(ENVIRONMENT)
	$(PYTHON) -m pip install -q --disable-pip-version-check -r requirements/site.txt
	@touch $@

site: build $(VENV)/.site ## the documentation as a site, in build/site
	$(PYTHON) -m sphinx -q -W --keep-going -b html docs $(BUILD)/site
	@echo "$(BUILD)/site/index.html"

clean: ## remove what was built, not the environment
	rm -rf $(BUILD) $(BUILD)-sanitize $(BUILD)-threads $(TORCH_OLDEST_TREE) python/exportguard/*.so
