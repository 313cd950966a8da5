"""Pipeline schedules as tables: generators, checker, simulator and observers; none of it needs torch."""
