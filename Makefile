# jitney: short names for common tasks. `make help` lists them.
#
# The work is done by CMake and Ninja (CMakeLists.txt) and by the scripts in tools/. All output is
# under build/: the release build, further builds in folders of it, the Python environment of the
# tests, and stamps that record which set-up has been done.

MODEL   ?= smollm2
URL     ?= http://127.0.0.1:8080
FLAGS   ?=
PREFIX  ?= /usr/local
SEC     ?= 300
MINUTES ?= 30
SEED    ?=
DEVICE  ?=
T       ?=
export MODEL URL

JITNEY   = build/jitney
CUBLASLT = env JITNEY_CUBLASLT_DIR="$${JITNEY_CUBLASLT_DIR:-$$PWD/build/cuda/nvidia/cu13/lib}"
PYTHON   = build/venv/bin/python
# The path of a model in the cache, from `jitney list --json`; empty if it is not there.
CACHED_PATH = 'import json, sys; print("".join(m["path"] for m in json.load(sys.stdin) \
	if m["name"] == sys.argv[1] and m["state"] == "cached"))'
SANITIZE = -DCMAKE_BUILD_TYPE=Debug -DJITNEY_TESTS=ON -DJITNEY_SANITIZE

.DEFAULT_GOAL := build
.PHONY: build run chat test test-identity check bench bench-server fuzz diff goldens install clean
.PHONY: test-abuse test-kill test-faults test-soak test-schemas bench-page bench-store bench-peers bench-grammar test-arm test-gpu bench-gpu build-cuda
.PHONY: screenshots help
.PHONY: check-format check-text check-warnings check-headers check-static check-binary

# Targets run one after another; ninja and run_tests use all cores.
.NOTPARALLEL:

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile

# Set-up: runs once, and again when the list of needed packages changes.
build/stamps/run: tools/setup
	@tools/setup run
	@mkdir -p build/stamps && touch $@

build/stamps/test: tools/setup tests/requirements.txt
	@tools/setup test
	@mkdir -p build/stamps && touch build/stamps/run $@

build/stamps/check: tools/setup tests/requirements.txt
	@tools/setup check
	@mkdir -p build/stamps && touch build/stamps/run build/stamps/test $@

build/stamps/arm: tools/setup tools/arm_root tests/requirements.txt
	@tools/setup arm
	@tools/arm_root build/arm-root
	@mkdir -p build/stamps && touch build/stamps/run build/stamps/test $@

build/stamps/frameworks: build/stamps/test tests/frameworks-requirements.txt
	@tools/setup frameworks
	@touch $@

build/stamps/goldens: tools/setup tools/goldens-requirements.txt
	@tools/setup goldens
	@mkdir -p build/stamps && touch $@

build: build/stamps/run ## build the program build/jitney and the library build/libjitney.so (release)
	@tools/build build jitney library

run: build $(if $(findstring cuda,$(DEVICE)),build-cuda) ## serve a model until Ctrl-C: MODEL=name or path, DEVICE=cuda, FLAGS="--port 9000"
	@[ -e "$$MODEL" ] || $(JITNEY) pull "$$MODEL"
	@exec $(if $(DEVICE),$(CUBLASLT)) $(JITNEY) serve "$$MODEL" $(if $(DEVICE),--device $(DEVICE)) $(FLAGS)

# With the toolkit that is installed, or with one from PyPI in build/cuda.
build-cuda: build/stamps/run
	@CUDA_HOME="$$(tools/cuda_toolkit)" && export CUDA_HOME && \
	    tools/build build jitney -DJITNEY_CUDA=on

chat: build ## chat with the server that "make run" started: URL=http://127.0.0.1:8080
	@exec $(JITNEY) chat --url "$$URL"

test: build/stamps/test build/stamps/frameworks ## run every test, also with the address, undefined and thread sanitizers
	@tools/build build all -DJITNEY_TESTS=ON
	@tools/build build/asan all $(SANITIZE)=address,undefined
	@tools/build build/tsan thread_tests $(SANITIZE)=thread
	@for model in smollm2 minilm; do $(JITNEY) pull $$model || \
	    echo "$$model could not be fetched; tests that need it are skipped"; done
	@JITNEY_TEST_MODEL="$$($(JITNEY) list --json | $(PYTHON) -c $(CACHED_PATH) smollm2)" \
	$(PYTHON) tools/run_tests --gate tools/check_layers --gate tools/check_style \
	    --gate tools/check_docs --gate "tools/make_cli_docs.py --check $(JITNEY)" \
	    --pytest $(PYTHON)=tests/e2e --pytest $(PYTHON)=tests/tools \
	    --ctest asan=build/asan --ctest tsan=build/tsan,thread --ctest release=build

test-identity: build/stamps/test ## compare answers in a batch with answers alone, all on the real model
	@tools/build build test_batch_identity jitney -DJITNEY_TESTS=ON
	@$(JITNEY) pull smollm2
	@JITNEY_IDENTITY=full build/tests/test_batch_identity

test-abuse: build/stamps/test ## attack servers on loopback for some minutes and measure what other clients notice
	@tools/build build jitney
	@$(PYTHON) tests/abuse/abuse.py
	@$(PYTHON) tests/abuse/abuse.py --policy fair
	@$(JITNEY) pull smollm2
	@$(PYTHON) tests/abuse/abuse.py --model smollm2 --runner local --seconds 60 \
	    --attack h2_zero_window_documents --attack slow_readers --attack h1_unread_documents \
	    --attack bodies_of_chats --attack h2_repeated_heads --attack reconnects
	@$(PYTHON) tests/abuse/fairness.py
	@$(PYTHON) tests/abuse/prefix_probe.py --trials 10000

test-kill: build/stamps/test ## kill servers with durable work 1,300 times, 300 of them with the loss of unsynced data: SEED=N
	@tools/build build jitney jitney_lossy -DJITNEY_TESTS=ON
	@$(PYTHON) tests/kill/kill_loop.py --kills 1000 --shards 20 $(if $(SEED),--seed $(SEED))
	@$(PYTHON) tests/kill/kill_loop.py --kills 300 --shards 6 --lossy $(if $(SEED),--seed $(SEED))
	@$(JITNEY) pull smollm2
	@$(PYTHON) tests/kill/kill_loop.py --kills 20 --model smollm2 --runner local --clients 6 \
	    --pace 8 $(if $(SEED),--seed $(SEED))

test-faults: build/stamps/test ## fail every call of the durable store and of batches to disk and memory, one after the other: SEED=N
	@tools/build build test_fault_disk test_fault_memory test_power_cut test_fault_folder \
	    test_fault_calls test_fault_batch test_fault_batch_files -DJITNEY_TESTS=ON
	@for name in jobs/test_fault_disk jobs/test_fault_memory jobs/test_power_cut \
	    jobs/test_fault_folder jobs/test_fault_calls cli/test_fault_batch cli/test_fault_batch_files; do \
	    echo "tests/fault/$$name.c"; JITNEY_FAULTS=full JITNEY_CUTS=2000 \
	    $(if $(SEED),JITNEY_SEED=$(SEED)) build/tests/$${name##*/} || \
	    { echo "test-faults: FAILED in tests/fault/$$name.c"; exit 1; }; done; \
	    echo "test-faults: all 7 programs passed"

test-soak: build/stamps/test ## keep a server under mixed traffic and look for leaks: MINUTES=30
	@tools/build build jitney
	@$(PYTHON) tests/kill/soak.py --minutes $(MINUTES)

test-schemas: build/stamps/test ## ask a real model for JSON of 100 schemas and for 200 tool calls at temperature 1, and validate them
	@tools/build build jitney
	@$(JITNEY) pull smollm2
	@$(PYTHON) tests/schemas/answers.py
	@$(PYTHON) tests/schemas/calls.py

test-arm: build/stamps/arm ## run kernel, golden and batch tests compiled for 64-bit Arm, in qemu
	@tools/build build jitney
	@tools/build build/arm ops_tests golden_tests identity_tests jitney \
	    -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake -DJITNEY_TESTS=ON
	@$(JITNEY) pull smollm2 || echo "smollm2 could not be fetched; its answers are not compared"
	@tools/test_arm $(PYTHON)

check: check-format check-text check-headers check-warnings check-static check-binary ## check format, style, docs, warnings and static analysis
	@echo "check: all checks passed"

check-format: build/stamps/check
	@echo "check: format"
	@find include src tests bench examples -name '*.[ch]' 2>/dev/null | xargs clang-format --dry-run -Werror
	@clang-format --dry-run -Werror web/*.js

check-text: build/stamps/check
	@echo "check: layers, style, docs, scripts"
	@for gate in layers style docs; do $(PYTHON) tools/check_$$gate || exit 1; done
	@grep -d skip -lE '^#!/(bin/sh|usr/bin/env bash)' .ci/* tools/* | xargs shellcheck

check-headers: build/stamps/check
	@echo "check: each header compiles alone"
	@tools/check_headers gcc clang

check-warnings: build/stamps/check
	@echo "check: no warnings from gcc and clang"
	@tools/build build/gcc all -DCMAKE_C_COMPILER=gcc -DJITNEY_TESTS=ON
	@tools/build build/clang all -DCMAKE_C_COMPILER=clang -DJITNEY_TESTS=ON

check-static: check-warnings
	@echo "check: static analysis"
	@tools/check_static build/clang

check-binary: build
	@echo "check: hardening of $(JITNEY)"
	@tools/check_binary $(JITNEY)

bench: build/stamps/run ## run every benchmark of bench/
	@tools/build build benches
	@for bench in $$(find build/bench -type f -executable | sort); do \
	    echo "# $$bench" && $$bench || exit 1; done

bench-server: build/stamps/test ## measure the HTTP server alone, with a runner that computes nothing
	@tools/build build bench_serve_load jitney
	@$(JITNEY) pull smollm2
	@$(PYTHON) tools/bench_server

bench-store: build/stamps/test ## measure how long 256 clients wait until their requests are stored, beside fsync of this disk
	@tools/build build jitney
	@$(PYTHON) bench/store_latency.py

bench-page: build/stamps/test ## measure the page in chromium: first paint, time in the frame callback
	@tools/build build jitney
	@$(PYTHON) bench/page.py

test-gpu: build/stamps/run ## check the device cuda on this machine's GPU: ops, sampling, models, bits of steps and answers
	@tools/gpu_check pack build/gpu
	@build/gpu/run rows products attention sampling models steps batches --variants ,graphs=off

bench-gpu: build/stamps/run ## measure the whole program on this machine's GPU: figures beside their bars
	@tools/gpu_check pack build/gpu
	@build/gpu/run --json build/gpu/figures.json $(FLAGS)

bench-peers: build/stamps/run ## compare jitney with llama.cpp, OpenVINO, vLLM and torch: FLAGS="--quick"
	@tools/build build jitney bench_peer_worker bench_peaks
	@$(JITNEY) pull smollm2
	@python3 tools/bench_peers $(FLAGS)

bench-grammar: build/stamps/test ## compare the masks of grammars with llguidance and xgrammar: FLAGS="--every 5"
	@tools/build build jitney
	@$(JITNEY) pull smollm2
	@$(PYTHON) bench/grammar/compare.py $(FLAGS) \
	    --vocabulary smollm2="$$($(JITNEY) list --json | $(PYTHON) -c $(CACHED_PATH) smollm2)" \
	    --vocabulary llama3=../shared/data/tokenizers/llama-bpe.gguf

fuzz: build/stamps/check ## run the fuzz targets: T=name for one of them, SEC=seconds for each
	@tools/fuzz "$(SEC)" $(T)

diff: build/stamps/test ## compare tokenizers and templates with their references on random input
	@tools/build build all -DJITNEY_TESTS=ON
	@$(PYTHON) tools/diff_tokenizers.py --driver build/tests/tok_driver --count 100000
	@for seed in 1 2 3 4 5 6 7 8 9 10; do \
	    $(PYTHON) tools/random_templates.py build/templates/$$seed 10000 $$seed && \
	    JITNEY_TEMPLATE_GOLDENS=build/templates/$$seed build/tests/test_template_golden \
	    || exit 1; done

screenshots: build/stamps/test ## make the pictures of the page again (docs/img), with chromium
	@tools/build build jitney
	@$(JITNEY) pull smollm2
	@$(PYTHON) tools/make_screenshots.py

goldens: build/stamps/goldens ## make the committed reference outputs again (downloads torch)
	@tools/build build jitney
	@build/venv-goldens/bin/python tools/make_goldens.py --out tests/golden/models
	@build/venv-goldens/bin/python tools/make_goldens.py --out tests/golden/models \
	    --minilm "$$($(JITNEY) pull minilm | sed 's/.*, //')"

install: build ## install to DESTDIR and PREFIX (/usr/local)
	@DESTDIR="$(DESTDIR)" cmake --install build --prefix "$(PREFIX)" --strip

clean: ## remove build/
	rm -rf build
