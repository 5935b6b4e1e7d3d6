"""Arrow logs: read row by row in any format, and written."""

from streamembed.data.column_roles import Columns
from streamembed.logs.event_log import EventLog, LogBatch, open_log
from streamembed.logs.followed_log import FollowedLog, follow_log
from streamembed.logs.log_writer import write_distance_log, write_log

__all__ = [
    "Columns",
    "EventLog",
    "FollowedLog",
    "LogBatch",
    "follow_log",
    "open_log",
    "write_distance_log",
    "write_log",
]
