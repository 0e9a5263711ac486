"""What every table of the benchmarks is made with: processes, plan, cells, tables, command."""
