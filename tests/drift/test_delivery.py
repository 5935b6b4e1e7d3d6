"""Where alarms go: nothing holds up the stream, attempts are bounded, what is lost is counted."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from streamembed.cli import exit_codes
from streamembed.cli.commands import main
from streamembed.drift import delivery
from streamembed.drift.alarm import Alarm
from streamembed.drift.delivery import CommandDelivery
from streamembed.errors import ParameterError
from streamembed.logs import write_log
from streamembed.runs.recorder import Recorder

ALARM = Alarm("alarm", 0, 1010, 1000, 0, "Mean shifted around event 1,000.", "features", 40, 1e6)


def test_a_slow_receiver_never_holds_up_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue is bounded; what finds it full is counted, and closing does not wait for ever."""
    monkeypatch.setattr(delivery, "MAX_WAITING", 3)
    slow = CommandDelivery(f"{sys.executable} -c 'import time; time.sleep(3)'")
    for _ in range(10):
        slow(ALARM)
    assert slow.dropped >= 6
    message = slow.close(0.1)
    assert message is not None
    assert "still waiting" in message


def test_a_command_has_a_line_of_json(tmp_path: Path) -> None:
    run = CommandDelivery(f"cat >> {tmp_path / 'lines'}")
    run(ALARM)
    run(ALARM)
    assert run.close() is None
    lines = (tmp_path / "lines").read_text().splitlines()
    assert [json.loads(line)["position"] for line in lines] == [1010, 1010]
    refused = CommandDelivery("exit 3")
    refused(ALARM)
    assert "1 not accepted" in str(refused.close())


def test_an_empty_command_is_refused() -> None:
    with pytest.raises(ParameterError, match="must be a command"):
        CommandDelivery(" ")


@pytest.mark.parametrize("ended", ["damaged", "interrupted"])
def test_a_replay_that_is_cut_off_still_hands_on_what_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: str
) -> None:
    """A bad row or Ctrl-C ended the process while alarms waited: lost, and nothing said so."""
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.standard_normal((400, 3)), rng.standard_normal((300, 3)) + 3])
    if ended == "damaged":
        points[-1, 0] = np.nan
    else:
        write, calls = Recorder.write_alarms, 0

        def stop(self: Recorder, alarms: Sequence[Alarm]) -> None:
            nonlocal calls
            write(self, alarms)
            calls += bool(alarms)
            if calls > 1:  # what came first waits
                raise KeyboardInterrupt

        monkeypatch.setattr(Recorder, "write_alarms", stop)
    write_log(tmp_path / "log", points, ["a", "b", "c"], rows_per_batch=20)
    lines = tmp_path / "lines"
    arguments = ["replay", tmp_path / "log", "--run", tmp_path / "run", "--memory", "window"]
    arguments += ["--max-rejected", "0", "--monitor", "--n-reference", "200"]
    arguments += ["--on-alarm", f"sleep 0.2; cat >> {lines}"]
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert done.exit_code == (exit_codes.USAGE if ended == "damaged" else exit_codes.INTERRUPTED)
    raised = re.findall(r"^(\w+): .*around event", done.stderr, re.M)
    assert raised[0] == "alarm"
    assert [json.loads(line)["kind"] for line in lines.read_text().splitlines()] == raised
