"""The parts of tools/bench_peers: engines and servers to ask, lines to measure, results that
outlive a run, and what is made of them: a table, comparisons, a plot."""
