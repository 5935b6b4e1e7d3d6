"""Arrow logs: read row by row in any format, and written."""

from streamembed.data.roles import Columns
from streamembed.logs.pairs import PairLog, open_pairs
from streamembed.logs.reader import EventLog, LogBatch, describe_log, open_log
from streamembed.logs.writer import write_distance_log, write_log

__all__ = [
    "Columns",
    "EventLog",
    "LogBatch",
    "PairLog",
    "describe_log",
    "open_log",
    "open_pairs",
    "write_distance_log",
    "write_log",
]
