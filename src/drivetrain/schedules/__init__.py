"""Pipeline schedules as tables: generators, checker, simulator and observer; nothing here needs torch."""
