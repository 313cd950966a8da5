"""A heartbeat as a rank writes it."""

from drivetrain.store.heartbeat import Heartbeat

BEAT = Heartbeat(
    time=1000.0,
    host="here",
    pid=42,
    process_began=900.0,
    rank=0,
    replica=0,
    stage="0",
    state="training",
    update=3,
    total_updates=10,
    loss=0.5,
)
