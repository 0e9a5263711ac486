"""The parts that all tables of the benchmarks share: processes, plan, cells, tables, command."""
