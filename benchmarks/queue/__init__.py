"""How fast the queue is: submitting, dispatching, ending, reporting; see benchmarks/README.md."""
